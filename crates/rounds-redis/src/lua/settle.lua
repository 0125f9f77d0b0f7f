-- KEYS: claim, and the next round's if something spills into it. ARGV: fence, 1 if this is the same call once more, 1 and the
-- reply or 0 and nothing, and of the next round: now, until, spill.
local known = redis.call('HMGET', KEYS[1], 's', 'f')
local ours = known[2] == ARGV[1] and (known[1] == 'R' or (known[1] == 'D' and ARGV[2] == '1'))
if not ours then return 0 end
-- What spills comes first: a reply whose token leads nowhere is not to be recorded.
if KEYS[2] then
  admit(KEYS[2], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7])
end
redis.call('HSET', KEYS[1], 's', 'D')
redis.call('HDEL', KEYS[1], 'l', 'n', 'p')
if ARGV[3] == '1' then
  redis.call('HSET', KEYS[1], 'v', ARGV[4])
end
return 1
