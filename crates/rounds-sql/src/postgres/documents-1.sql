-- Documents: tasks, and decisions on questions that are answered elsewhere. All times are milliseconds since 1970, by the
-- caller's clock.
CREATE TABLE rounds_documents (
    kind       text   NOT NULL, -- task or decision
    id         bytea  NOT NULL, -- a digest
    version    bigint NOT NULL, -- incremented by every write
    sealed     bytea  NOT NULL, -- the content
    due        bigint,          -- when an instance should look at it
    kept_until bigint NOT NULL, -- when it may be removed
    PRIMARY KEY (kind, id)
);
CREATE INDEX rounds_documents_due ON rounds_documents (kind, due) WHERE due IS NOT NULL;
CREATE INDEX rounds_documents_kept_until ON rounds_documents (kept_until);

-- Writes a document if its newest version is this one, or if there is none. `again` recognises a write that has happened
-- and whose reply was lost: no two writes seal to the same bytes.
CREATE FUNCTION rounds_write_document(
    a_kind text, an_id bytea, before bigint, again boolean, at bigint, content bytea, due_at bigint, keep_until bigint,
    a_flow bytea, a_status bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF before IS NULL THEN
        INSERT INTO rounds_documents AS known VALUES (a_kind, an_id, 1, content, due_at, keep_until)
        ON CONFLICT (kind, id) DO UPDATE
        SET version = 1, sealed = excluded.sealed, due = excluded.due, kept_until = excluded.kept_until
        WHERE known.kept_until <= at;
    ELSE
        UPDATE rounds_documents SET version = before + 1, sealed = content, due = due_at, kept_until = keep_until
        WHERE kind = a_kind AND id = an_id AND version = before AND kept_until > at;
    END IF;
    IF FOUND THEN
        IF a_flow IS NOT NULL THEN
            PERFORM rounds_tell(a_flow, a_status);
        END IF;
        RETURN true;
    END IF;
    RETURN again AND EXISTS (SELECT 1 FROM rounds_documents WHERE kind = a_kind AND id = an_id
                             AND version = coalesce(before, 0) + 1 AND sealed = content);
END $$;
