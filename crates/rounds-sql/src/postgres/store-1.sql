-- The claims: the right to answer a round or to run an effect, and what came of it.
--
-- All times are milliseconds since 1970. `expires` is by the clock of this server, the others are by the caller's clock.
CREATE TABLE rounds_claims (
    flow        bytea    NOT NULL, -- the digest of the flow
    what        bytea    NOT NULL, -- 'r' and the number of a round in four bytes, or 'e' and the digest of an effect
    state       smallint NOT NULL, -- 0 free, 1 running, 2 done, 3 dead
    fence       bigint   NOT NULL, -- incremented whenever an owner takes the claim
    answers     bytea,             -- the digest of the answers, if running or done
    lease_until bigint,            -- when the owner's lease lapses, if running
    claimant    bytea,             -- the owner, to recognise it when it calls again, if running
    kept_until  bigint   NOT NULL, -- when the record is no longer needed
    skew        bigint   NOT NULL, -- how far this server's clock is ahead of the caller's
    expires     bigint   NOT NULL, -- when the record is removed
    outcome     bytea,             -- the recorded reply or value, sealed, if done
    spilled     bytea,             -- what the token of the round could not carry, sealed, until done
    PRIMARY KEY (flow, what)
);
CREATE INDEX rounds_claims_expires ON rounds_claims (expires);

-- The instances in which a leg waits for a claim that runs. Not logged: after a crash of the server all wait again.
CREATE UNLOGGED TABLE rounds_waiters (
    flow     bytea  NOT NULL,
    what     bytea  NOT NULL,
    instance bytea  NOT NULL, -- a random name of the process
    until    bigint NOT NULL, -- when it no longer counts, unless it is registered again
    PRIMARY KEY (flow, what, instance)
);

-- The messages between instances, removed by their receiver. Not logged: a relay may lose a message.
CREATE UNLOGGED TABLE rounds_messages (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    receiver bigint NOT NULL, -- the key of the receiver's advisory lock
    message  bytea  NOT NULL, -- sealed
    sent     bigint NOT NULL
);
CREATE INDEX rounds_messages_receiver ON rounds_messages (receiver, number);

CREATE FUNCTION rounds_clock() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- Registers a waiter for three seconds.
CREATE FUNCTION rounds_register_waiter(a_flow bytea, a_what bytea, an_instance bytea) RETURNS void LANGUAGE sql AS $$
    INSERT INTO rounds_waiters AS waiter (flow, what, instance, until)
    VALUES (a_flow, a_what, an_instance, rounds_clock() + 3000)
    ON CONFLICT (flow, what, instance) DO UPDATE SET until = excluded.until
    WHERE waiter.until < excluded.until - 1000
$$;

-- Claims. The outcome is fresh (with fence and spilled state), running, done (with the recorded outcome), other (it was
-- answered otherwise), dead, or full (a new record does not fit into the caller's share).
CREATE FUNCTION rounds_claim(
    a_flow bytea, a_what bytea, the_answers bytea, at bigint, keep_until bigint, new_lease bigint, dies boolean,
    a_claimant bytea, an_instance bytea, first_fence bigint, fits boolean,
    OUT outcome text, OUT new_fence bigint, OUT content bytea
) LANGUAGE plpgsql AS $$
DECLARE
    known rounds_claims;
    ahead bigint := rounds_clock() - at;
    last  bigint := greatest(keep_until, new_lease) + ahead;
BEGIN
    LOOP
        SELECT * INTO known FROM rounds_claims WHERE flow = a_flow AND what = a_what FOR UPDATE;
        EXIT WHEN FOUND;
        IF NOT fits THEN
            outcome := 'full';
            RETURN;
        END IF;
        INSERT INTO rounds_claims (flow, what, state, fence, answers, lease_until, claimant, kept_until, skew, expires)
        VALUES (a_flow, a_what, 1, first_fence, the_answers, new_lease, a_claimant, keep_until, ahead, last)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            outcome := 'fresh';
            new_fence := first_fence;
            RETURN;
        END IF;
    END LOOP;

    IF known.state = 1 AND known.claimant = a_claimant THEN
        -- The same call again: the reply to the first was lost.
        outcome := 'fresh';
        new_fence := known.fence;
        content := known.spilled;
    ELSIF known.state = 1 AND known.lease_until <= at AND dies THEN
        UPDATE rounds_claims SET state = 3, answers = NULL, lease_until = NULL, claimant = NULL
        WHERE flow = a_flow AND what = a_what;
        outcome := 'dead';
    ELSIF known.state = 3 THEN
        outcome := 'dead';
    ELSIF known.state <> 0 AND known.answers IS DISTINCT FROM the_answers THEN
        outcome := 'other';
    ELSIF known.state = 2 THEN
        outcome := 'done';
        content := known.outcome;
    ELSIF known.state = 1 AND known.lease_until > at THEN
        PERFORM rounds_register_waiter(a_flow, a_what, an_instance);
        outcome := 'running';
    ELSE
        UPDATE rounds_claims
        SET state = 1, fence = fence + 1, answers = the_answers, lease_until = new_lease, claimant = a_claimant,
            kept_until = greatest(kept_until, keep_until), skew = ahead, expires = greatest(expires, last)
        WHERE flow = a_flow AND what = a_what
        RETURNING fence, spilled INTO new_fence, content;
        outcome := 'fresh';
    END IF;
END $$;

-- Records the state that the token of a round could not carry.
CREATE FUNCTION rounds_spill(a_flow bytea, a_what bytea, at bigint, keep_until bigint, a_state bytea, first_fence bigint)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO rounds_claims AS claim (flow, what, state, fence, kept_until, skew, expires, spilled)
    SELECT a_flow, a_what, 0, first_fence, keep_until, ahead, keep_until + ahead, a_state
    FROM (SELECT rounds_clock() - at AS ahead) AS clock
    ON CONFLICT (flow, what) DO UPDATE
    SET kept_until = excluded.kept_until, skew = excluded.skew, expires = greatest(claim.expires, excluded.expires),
        spilled = excluded.spilled
$$;

CREATE FUNCTION rounds_renew(a_flow bytea, a_what bytea, a_fence bigint, new_lease bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE rounds_claims SET lease_until = new_lease, expires = greatest(expires, new_lease + skew)
    WHERE flow = a_flow AND what = a_what AND state = 1 AND fence = a_fence;
    RETURN FOUND;
END $$;

-- Records the outcome of a claim, the state that its reply could not carry, and that effects are kept no longer than it.
-- `again` is true if the reply to the same call was lost.
CREATE FUNCTION rounds_settle(
    a_flow bytea, a_what bytea, a_fence bigint, again boolean, an_outcome bytea,
    next_what bytea, next_at bigint, next_until bigint, next_state bytea, next_fence bigint, spent bytea[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    round_kept bigint;
    round_expires bigint;
BEGIN
    UPDATE rounds_claims
    SET state = 2, outcome = an_outcome, spilled = NULL, lease_until = NULL, claimant = NULL
    WHERE flow = a_flow AND what = a_what AND fence = a_fence AND (state = 1 OR (state = 2 AND again))
    RETURNING kept_until, expires INTO round_kept, round_expires;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF next_what IS NOT NULL THEN
        PERFORM rounds_spill(a_flow, next_what, next_at, next_until, next_state, next_fence);
    END IF;
    IF cardinality(spent) > 0 THEN
        -- A running effect is left to its owner.
        UPDATE rounds_claims SET kept_until = round_kept, expires = least(expires, round_expires)
        WHERE flow = a_flow AND what = ANY (spent) AND state <> 1 AND kept_until > round_kept;
    END IF;
    RETURN true;
END $$;

-- Gives up a claim. True if it is kept, because a leg waits for it in another instance. The caller has checked its own.
CREATE FUNCTION rounds_release(
    a_flow bytea, a_what bytea, a_fence bigint, new_state smallint, unless_awaited boolean, an_instance bytea
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF unless_awaited THEN
        -- Locked first, so that a leg that is about to wait is seen, or sees the release.
        PERFORM 1 FROM rounds_claims WHERE flow = a_flow AND what = a_what FOR UPDATE;
        IF EXISTS (SELECT 1 FROM rounds_waiters
                   WHERE flow = a_flow AND what = a_what AND instance <> an_instance AND until > rounds_clock()) THEN
            RETURN true;
        END IF;
    END IF;
    UPDATE rounds_claims SET state = new_state, answers = NULL, lease_until = NULL, claimant = NULL
    WHERE flow = a_flow AND what = a_what AND state = 1 AND fence = a_fence;
    RETURN false;
END $$;

-- Frees a claim whose owner never learned that it has it. True if there was one.
CREATE FUNCTION rounds_abandon(a_flow bytea, a_what bytea, a_claimant bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE rounds_claims SET state = 0, answers = NULL, lease_until = NULL, claimant = NULL
    WHERE flow = a_flow AND what = a_what AND state = 1 AND claimant = a_claimant;
    RETURN FOUND;
END $$;

-- Whether a claim runs. If it does, the waiter is registered again.
CREATE FUNCTION rounds_look(a_flow bytea, a_what bytea, an_instance bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM rounds_claims WHERE flow = a_flow AND what = a_what AND state = 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM rounds_register_waiter(a_flow, a_what, an_instance);
    RETURN true;
END $$;

-- Removes what has expired, a thousand claims at most. True if there may be more. Rows that another instance is removing
-- are left to it.
CREATE FUNCTION rounds_sweep() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    removed bigint;
BEGIN
    DELETE FROM rounds_waiters WHERE until < rounds_clock();
    DELETE FROM rounds_messages WHERE sent < rounds_clock() - 60000;
    DELETE FROM rounds_claims WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM rounds_claims WHERE expires < rounds_clock() LIMIT 1000 FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed = 1000;
END $$;

-- Leaves a message for an instance and notifies it. An instance holds an advisory lock for as long as it is connected, so
-- a lock that can be taken says that the instance is gone. `settled` is false if the sender itself is not connected, and
-- then an absent receiver may be about to connect again as well.
CREATE FUNCTION rounds_post(to_lock bigint, own_lock bigint, a_message bytea, OUT sent boolean, OUT settled boolean)
LANGUAGE plpgsql AS $$
BEGIN
    settled := NOT pg_try_advisory_xact_lock_shared(own_lock);
    sent := NOT pg_try_advisory_xact_lock_shared(to_lock);
    IF sent THEN
        INSERT INTO rounds_messages (receiver, message, sent) VALUES (to_lock, a_message, rounds_clock());
        PERFORM pg_notify('rounds_' || to_hex(to_lock), '');
    END IF;
END $$;

-- Takes the messages of an instance, the oldest first.
CREATE FUNCTION rounds_take_messages(own_lock bigint) RETURNS SETOF bytea LANGUAGE sql AS $$
    WITH taken AS (DELETE FROM rounds_messages WHERE receiver = own_lock RETURNING number, message)
    SELECT message FROM taken ORDER BY number
$$;

-- The register: one record for each flow that has asked.
CREATE TABLE rounds_flows (
    flow        bytea   NOT NULL PRIMARY KEY, -- the digest of the flow
    method      text    NOT NULL,             -- tools/call, prompts/get or resources/read
    target      text    NOT NULL,             -- the name of the tool or prompt; of a resource the scheme of its URI
    principal   bytea,                        -- a keyed digest of the principal
    created     bigint  NOT NULL,
    changed     bigint  NOT NULL,
    deadline    bigint  NOT NULL,
    status      bigint  NOT NULL,             -- 0 working, 1 waiting, 2 completed, 3 failed, 4 cancelled, 5 expired
    round       bigint  NOT NULL,             -- the round that is asked or answered
    open        text    NOT NULL,             -- the keys of open questions, as a JSON array
    open_until  bigint  NOT NULL,             -- when an open flow expires
    kept_until  bigint  NOT NULL,             -- when the record may be removed
    owner       text,                         -- the instance that works on it, or where its handler waits
    owner_lease bigint,                       -- when the owner's lease lapses
    keys        bytea[] NOT NULL,             -- the ids of the keys that sealed its parts
    timeline    bytea   NOT NULL,             -- thirteen bytes for each entry: leg, station, time
    deleted     boolean NOT NULL DEFAULT false -- only the cancellation is remembered
);
CREATE INDEX rounds_flows_open ON rounds_flows (created, flow) WHERE status IN (0, 1);
CREATE INDEX rounds_flows_created ON rounds_flows (created, flow);
CREATE INDEX rounds_flows_kept_until ON rounds_flows (kept_until);
CREATE INDEX rounds_flows_principal ON rounds_flows (principal) WHERE principal IS NOT NULL;

-- The sealed parts of a record: arguments, questions, answers, results.
CREATE TABLE rounds_parts (
    flow   bytea  NOT NULL,
    number bigint NOT NULL,
    sealed bytea  NOT NULL,
    PRIMARY KEY (flow, number)
);

-- What a step changes in a record. Every step locks the record before the claim, so that no two wait for each other.
CREATE TYPE rounds_change AS (
    flow bytea, method text, target text, principal bytea, created bigint, changed bigint, deadline bigint,
    status bigint, round bigint, open text, open_until bigint, kept_until bigint, owner text, owner_lease bigint,
    keys bytea[], entry bytea, part_number bigint, part bytea
);

-- Tells the watchers of all instances.
CREATE FUNCTION rounds_tell(a_flow bytea, a_status bigint) RETURNS void LANGUAGE sql
AS $$ SELECT pg_notify('rounds_flows', encode(a_flow, 'hex') || ' ' || a_status) $$;

-- A timeline with one more entry: of 64 at most, the oldest are dropped.
CREATE FUNCTION rounds_enter(a_timeline bytea, an_entry bytea) RETURNS bytea LANGUAGE sql IMMUTABLE
AS $$ SELECT substr(a_timeline, greatest(1, length(a_timeline) - 63 * 13 + 1)) || an_entry $$;

CREATE FUNCTION rounds_apply(change rounds_change) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rounds_flows AS known
    VALUES (change.flow, change.method, change.target, change.principal, change.created, change.changed,
            change.deadline, change.status, change.round, change.open, change.open_until, change.kept_until,
            change.owner, change.owner_lease, change.keys, change.entry)
    ON CONFLICT (flow) DO UPDATE
    SET changed = excluded.changed, deadline = excluded.deadline, status = excluded.status, round = excluded.round,
        open = excluded.open, open_until = excluded.open_until, kept_until = excluded.kept_until,
        owner = excluded.owner, owner_lease = excluded.owner_lease,
        keys = known.keys || ARRAY(SELECT key FROM unnest(change.keys) WITH ORDINALITY AS added (key, place)
                                   WHERE key <> ALL (known.keys) ORDER BY place),
        timeline = rounds_enter(known.timeline, change.entry);
    IF change.part IS NOT NULL THEN
        INSERT INTO rounds_parts VALUES (change.flow, change.part_number, change.part)
        ON CONFLICT (flow, number) DO UPDATE SET sealed = excluded.sealed;
    END IF;
    PERFORM rounds_tell(change.flow, change.status);
END $$;

-- Enters that a leg was refused: by other answers (6) or because the round has ended (7). A record whose round is lost
-- for good has failed.
CREATE FUNCTION rounds_refuse(change rounds_change, station integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE rounds_flows
    SET status = 3, changed = change.changed, owner = NULL, owner_lease = NULL, open = '[]',
        timeline = rounds_enter(timeline, set_byte(change.entry, 4, 4))
    WHERE flow = change.flow AND station = 7 AND status = 0 AND int4send(round::integer) = substr(change.entry, 1, 4);
    IF FOUND THEN
        PERFORM rounds_tell(change.flow, 3);
    ELSE
        UPDATE rounds_flows SET timeline = timeline || set_byte(change.entry, 4, station)
        WHERE flow = change.flow AND length(timeline) < 32 * 13;
    END IF;
END $$;

CREATE FUNCTION rounds_begin(
    change rounds_change, next_what bytea, next_at bigint, next_until bigint, next_state bytea, next_fence bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM rounds_apply(change);
    IF next_what IS NOT NULL THEN
        PERFORM rounds_spill(change.flow, next_what, next_at, next_until, next_state, next_fence);
    END IF;
END $$;

-- Claims, and changes the record of the flow. The outcome may also be cancelled.
CREATE FUNCTION rounds_claim_with(
    a_flow bytea, a_what bytea, the_answers bytea, at bigint, keep_until bigint, new_lease bigint, dies boolean,
    a_claimant bytea, an_instance bytea, first_fence bigint, fits boolean, change rounds_change,
    OUT outcome text, OUT new_fence bigint, OUT content bytea
) LANGUAGE plpgsql AS $$
DECLARE
    known_status bigint;
BEGIN
    SELECT status INTO known_status FROM rounds_flows WHERE flow = a_flow FOR UPDATE;
    IF known_status = 4 THEN
        outcome := 'cancelled';
        RETURN;
    END IF;
    SELECT claimed.* INTO outcome, new_fence, content FROM rounds_claim(a_flow, a_what, the_answers, at, keep_until,
        new_lease, dies, a_claimant, an_instance, first_fence, fits) AS claimed;
    IF change.flow IS NULL THEN
        RETURN;
    ELSIF outcome = 'fresh' THEN
        PERFORM rounds_apply(change);
    ELSIF outcome = 'other' THEN
        PERFORM rounds_refuse(change, 6);
    ELSIF outcome = 'dead' THEN
        PERFORM rounds_refuse(change, 7);
    END IF;
END $$;

CREATE FUNCTION rounds_settle_with(
    a_flow bytea, a_what bytea, a_fence bigint, again boolean, an_outcome bytea,
    next_what bytea, next_at bigint, next_until bigint, next_state bytea, next_fence bigint, spent bytea[],
    change rounds_change
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM rounds_flows WHERE flow = a_flow FOR UPDATE;
    IF NOT rounds_settle(a_flow, a_what, a_fence, again, an_outcome, next_what, next_at, next_until, next_state,
                         next_fence, spent) THEN
        RETURN false;
    END IF;
    PERFORM rounds_apply(change);
    RETURN true;
END $$;

CREATE FUNCTION rounds_release_with(
    a_flow bytea, a_what bytea, a_fence bigint, new_state smallint, unless_awaited boolean, an_instance bytea,
    change rounds_change
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    was_running boolean;
BEGIN
    PERFORM 1 FROM rounds_flows WHERE flow = a_flow FOR UPDATE;
    PERFORM 1 FROM rounds_claims WHERE flow = a_flow AND what = a_what AND state = 1 AND fence = a_fence FOR UPDATE;
    was_running := FOUND;
    IF rounds_release(a_flow, a_what, a_fence, new_state, unless_awaited, an_instance) THEN
        RETURN true;
    END IF;
    IF was_running THEN
        PERFORM rounds_apply(change);
    END IF;
    RETURN false;
END $$;

-- Extends the lease of a round, and of the record that works on it.
CREATE FUNCTION rounds_renew_round(a_flow bytea, a_what bytea, a_fence bigint, new_lease bigint, a_round bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM rounds_flows WHERE flow = a_flow FOR UPDATE;
    IF NOT rounds_renew(a_flow, a_what, a_fence, new_lease) THEN
        RETURN false;
    END IF;
    UPDATE rounds_flows
    SET open_until = greatest(open_until, new_lease), owner_lease = CASE WHEN owner IS NULL THEN NULL ELSE new_lease END
    WHERE flow = a_flow AND round = a_round AND status = 0;
    RETURN true;
END $$;

-- Cancels a flow and kills its round. Returns the status before and the round, or nothing if there is no record.
CREATE FUNCTION rounds_cancel(
    a_flow bytea, at bigint, retention bigint, slack bigint, OUT before bigint, OUT in_round bigint
) LANGUAGE plpgsql AS $$
DECLARE
    known rounds_flows;
BEGIN
    SELECT * INTO known FROM rounds_flows WHERE flow = a_flow AND NOT deleted FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    in_round := known.round;
    before := CASE WHEN known.status IN (0, 1) AND known.open_until <= at THEN 5 ELSE known.status END;
    IF before IN (0, 1) THEN
        UPDATE rounds_flows
        SET status = 4, changed = at, owner = NULL, owner_lease = NULL, open = '[]',
            kept_until = greatest(at + retention, open_until + slack),
            timeline = rounds_enter(timeline, int4send(round::integer) || '\x05'::bytea || int8send(at))
        WHERE flow = a_flow;
        UPDATE rounds_claims SET state = 3, answers = NULL, lease_until = NULL, claimant = NULL
        WHERE flow = a_flow AND what = '\x72'::bytea || int4send(known.round::integer) AND state <> 2;
        PERFORM rounds_tell(a_flow, 4);
    END IF;
END $$;

-- Deletes one record, or those of a principal. One that was cancelled is remembered while its tokens could be used.
CREATE FUNCTION rounds_delete(one bytea, principals bytea[], at bigint, retention bigint, slack bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    an_id bytea;
    removed bigint := 0;
BEGIN
    FOR an_id IN SELECT flow FROM rounds_flows WHERE (flow = one OR principal = ANY (principals)) AND NOT deleted
                 ORDER BY flow FOR UPDATE LOOP
        PERFORM rounds_cancel(an_id, at, retention, slack);
        DELETE FROM rounds_parts WHERE flow = an_id;
        DELETE FROM rounds_flows WHERE flow = an_id AND (status <> 4 OR open_until + slack <= at);
        UPDATE rounds_flows
        SET target = '', principal = NULL, open = '[]', keys = '{}', timeline = '', kept_until = open_until + slack,
            deleted = true
        WHERE flow = an_id;
        removed := removed + 1;
    END LOOP;
    RETURN removed;
END $$;

-- Removes records whose time is over, at most so many, and returns how many. Expired flows are marked as such an hour
-- later, so that lists of open flows need not pass over them.
CREATE FUNCTION rounds_sweep_flows(at bigint, most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    due bytea[];
BEGIN
    UPDATE rounds_flows SET status = 5, open = '[]' WHERE status IN (0, 1) AND open_until < at - 3600000;
    UPDATE rounds_flows SET kept_until = open_until
    WHERE kept_until <= at AND status IN (0, 1) AND open_until > at;
    due := ARRAY(SELECT flow FROM rounds_flows WHERE kept_until <= at LIMIT most FOR UPDATE SKIP LOCKED);
    DELETE FROM rounds_parts WHERE flow = ANY (due);
    DELETE FROM rounds_flows WHERE flow = ANY (due);
    RETURN cardinality(due);
END $$;
