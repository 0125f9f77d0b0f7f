-- KEYS: claim. ARGV: now, until, the state.
spill(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3])
return 1
