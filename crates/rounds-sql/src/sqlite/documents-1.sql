-- Documents: tasks, and decisions on questions that are answered elsewhere. All times are milliseconds since 1970, by the
-- caller's clock.
CREATE TABLE rounds_documents (
    kind       TEXT    NOT NULL, -- task or decision
    id         BLOB    NOT NULL, -- a digest
    version    INTEGER NOT NULL, -- incremented by every write
    sealed     BLOB    NOT NULL, -- the content
    due        INTEGER,          -- when an instance should look at it
    kept_until INTEGER NOT NULL, -- when it may be removed
    PRIMARY KEY (kind, id)
) STRICT;
CREATE INDEX rounds_documents_due ON rounds_documents (kind, due) WHERE due IS NOT NULL;
CREATE INDEX rounds_documents_kept_until ON rounds_documents (kept_until);
