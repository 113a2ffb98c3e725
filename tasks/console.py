"""What the commands share: the store of the settings, and one line about what is wrong with either."""

from collections.abc import Iterator
from contextlib import contextmanager

import click
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from tasks.database import DatabaseError
from tasks.settings import SettingsError, settings
from tasks.store import Store


@contextmanager
def the_store() -> Iterator[Store]:
    """Open the store of the settings.

    Raises:
        click.ClickException: it cannot be opened or used, or a setting is wrong.
    """
    try:
        with Store.open(settings().database_url) as store:
            yield store
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    except DatabaseError as error:
        raise click.ClickException(f"DATABASE_URL={_shown()}: {error}") from error
    except (DBAPIError, OSError) as error:
        why = error.orig if isinstance(error, DBAPIError) else error
        raise click.ClickException(
            f"DATABASE_URL={_shown()}: {why}; see that it can be written to"
        ) from error


def _shown() -> str:
    return make_url(settings().database_url).render_as_string(hide_password=True)
