-- The effects that have run in a transaction of this database, one row for each flow and name.
CREATE TABLE rounds_effects (
    effect     TEXT   NOT NULL PRIMARY KEY, -- the effect's idempotency key: a digest of the flow and the effect's name
    value      TEXT   NOT NULL,             -- the effect's value, as JSON
    created    BIGINT NOT NULL,             -- in milliseconds since 1970
    kept_until BIGINT NOT NULL              -- when the flow can no longer reach the effect, in milliseconds since 1970
);
CREATE INDEX rounds_effects_kept_until ON rounds_effects (kept_until);
