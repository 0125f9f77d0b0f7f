-- KEYS: claim, the next round's claim if a state spills into it, and the effects of the flow that no later leg needs.
-- ARGV: fence, 1 if this is the same call again, 1 and the reply or 0 and nothing, 1 if a state spills, and then for
-- the next round: now, kept until, state.
local known = redis.call('HMGET', KEYS[1], 's', 'f', 'u')
local ours = known[2] == ARGV[1] and (known[1] == 'R' or (known[1] == 'D' and ARGV[2] == '1'))
if not ours then return 0 end
-- The spilled state is written first: a reply must not be recorded if its token refers to a state that is missing.
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
  -- A running effect is left to its owner, and a missing record must not be created.
  if effect[2] and effect[1] ~= 'R' and tonumber(effect[2]) > tonumber(known[3]) then
    redis.call('HSET', KEYS[i], 'u', known[3])
    redis.call('PEXPIREAT', KEYS[i], text(until_then), 'LT')
  end
end
return 1
