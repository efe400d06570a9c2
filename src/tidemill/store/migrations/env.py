"""What alembic runs for every upgrade: on the connection, and in the transaction, that `store.migrate` opened."""

from alembic import context

from tidemill.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
