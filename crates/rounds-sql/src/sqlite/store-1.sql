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

-- The register: one record for each flow that has asked.
CREATE TABLE rounds_flows (
    flow        BLOB    NOT NULL PRIMARY KEY, -- the digest of the flow
    method      TEXT    NOT NULL,             -- tools/call, prompts/get or resources/read
    target      TEXT    NOT NULL,             -- the name of the tool or prompt; of a resource the scheme of its URI
    principal   BLOB,                         -- a keyed digest of the principal
    created     INTEGER NOT NULL,
    changed     INTEGER NOT NULL,
    deadline    INTEGER NOT NULL,
    status      INTEGER NOT NULL,             -- 0 working, 1 waiting, 2 completed, 3 failed, 4 cancelled, 5 expired
    round       INTEGER NOT NULL,             -- the round that is asked or answered
    open        TEXT    NOT NULL,             -- the keys of open questions, as a JSON array
    open_until  INTEGER NOT NULL,             -- when an open flow expires
    kept_until  INTEGER NOT NULL,             -- when the record may be removed
    owner       TEXT,                         -- the instance that works on it, or where its handler waits
    owner_lease INTEGER,                      -- when the owner's lease lapses
    keys        BLOB    NOT NULL,             -- the ids of the keys that sealed its parts, eight bytes each
    timeline    BLOB    NOT NULL,             -- thirteen bytes for each entry: leg, station, time
    deleted     INTEGER NOT NULL              -- 1 if only the cancellation is remembered
) STRICT;
CREATE INDEX rounds_flows_open ON rounds_flows (created, flow) WHERE status IN (0, 1);
CREATE INDEX rounds_flows_created ON rounds_flows (created, flow);
CREATE INDEX rounds_flows_kept_until ON rounds_flows (kept_until);
CREATE INDEX rounds_flows_principal ON rounds_flows (principal) WHERE principal IS NOT NULL;

-- The sealed parts of a record: arguments, questions, answers, results.
CREATE TABLE rounds_parts (
    flow   BLOB    NOT NULL,
    number INTEGER NOT NULL,
    sealed BLOB    NOT NULL,
    PRIMARY KEY (flow, number)
) STRICT;
