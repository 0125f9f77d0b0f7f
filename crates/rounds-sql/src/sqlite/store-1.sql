-- The claims: the right to answer a round or to run an effect, and what came of it.
--
-- All times are milliseconds since 1970. `expires` is by the clock of this host, the others are by the caller's clock.
CREATE TABLE rounds_claims (
    flow        BLOB    NOT NULL, -- the digest of the flow
    what        BLOB    NOT NULL, -- 'r' and the number of a round in four bytes, or 'e' and the digest of an effect
    state       INTEGER NOT NULL, -- 0 free, 1 running, 2 done, 3 dead
    fence       INTEGER NOT NULL, -- incremented whenever an owner takes the claim
    answers     BLOB,             -- the digest of the answers, if running or done
    lease_until INTEGER,          -- when the owner's lease lapses, if running
    kept_until  INTEGER NOT NULL, -- when the record is no longer needed
    skew        INTEGER NOT NULL, -- how far this host's clock is ahead of the caller's
    expires     INTEGER NOT NULL, -- when the record is removed
    outcome     BLOB,             -- the recorded reply or value, sealed, if done
    spilled     BLOB,             -- what the token of the round could not carry, sealed, until done
    PRIMARY KEY (flow, what)
) STRICT;
CREATE INDEX rounds_claims_expires ON rounds_claims (expires);

-- The instances in which a leg waits for a claim that runs.
CREATE TABLE rounds_waiters (
    flow     BLOB    NOT NULL,
    what     BLOB    NOT NULL,
    instance BLOB    NOT NULL, -- a random name of the process
    until    INTEGER NOT NULL, -- when it no longer counts, unless it is registered again
    PRIMARY KEY (flow, what, instance)
) STRICT, WITHOUT ROWID;
