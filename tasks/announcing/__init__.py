"""What the job `sitemap` is made of: read the site's sitemap as a stranger would, and announce what changed.

Reading path: `reading.py` (robots.txt, indexes, files) over `fetching.py` (HTTP, bounded), `unpacking.py`
(gzip) and `entries.py` (XML); then `inventory.py` (what is known, in SQL) and `sending.py` (batches) over
`indexnow.py` (one request).
"""
