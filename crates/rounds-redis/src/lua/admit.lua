-- KEYS: claim. ARGV: now, until, the spill if there is one.
admit(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3])
return 1
