-- `step` is the release itself. ARGV from 5 on: the change.
local before = redis.call('HMGET', KEYS[1], 's', 'f')
local kept = step()
if kept == 0 and before[1] == 'R' and before[2] == ARGV[1] then
  apply(5)
end
return kept
