-- KEYS: claim, the next round's if something spills into it, and effects of the flow that no later leg asks for. ARGV: fence, 1 if
-- this is the same call once more, 1 and the reply or 0 and nothing, 1 if something spills, and then of the next round: now, until, spill.
local known = redis.call('HMGET', KEYS[1], 's', 'f', 'u')
local ours = known[2] == ARGV[1] and (known[1] == 'R' or (known[1] == 'D' and ARGV[2] == '1'))
if not ours then return 0 end
-- What spills comes first: a reply whose token leads nowhere is not to be recorded.
local spills = ARGV[5] == '1'
if spills then
  spill(KEYS[2], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8])
end
redis.call('HSET', KEYS[1], 's', 'D')
redis.call('HDEL', KEYS[1], 'l', 'n', 'p')
if ARGV[3] == '1' then
  redis.call('HSET', KEYS[1], 'v', ARGV[4])
end
local until_then = redis.call('PEXPIRETIME', KEYS[1])
for i = spills and 3 or 2, #KEYS do
  local effect = redis.call('HMGET', KEYS[i], 's', 'u')
  -- One that runs is left to its owner; what is not there is not to come into being.
  if effect[2] and effect[1] ~= 'R' and tonumber(effect[2]) > tonumber(known[3]) then
    redis.call('HSET', KEYS[i], 'u', known[3])
    redis.call('PEXPIREAT', KEYS[i], text(until_then), 'LT')
  end
end
return 1
