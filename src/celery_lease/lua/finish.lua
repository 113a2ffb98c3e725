-- Remembers a delivery as carried out once the message that follows it has been sent.
--
-- KEYS[1] cron:{name}:done    sorted set      finished deliveries and withdrawn tokens
-- ARGV[1] remembered          what the delivery is remembered as, see acquire
--
-- Returns {"finished"}.
local micros = server_time()
finish_delivery(KEYS[1], micros, ARGV[1])
return {'finished'}
