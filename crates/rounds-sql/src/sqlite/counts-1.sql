-- Counts of flows by their status and tool, without reading their rows.
CREATE INDEX rounds_flows_count ON rounds_flows (status, target, open_until, deleted);
