-- A document is one hash:  v  version   c  content, sealed   d  when it is due, or empty   u  when its time is over
--
-- KEYS: document, the due times of its kind. ARGV: member there, version before or empty, 1 if the same call may have
-- happened, now, content, due or empty, until, channel or empty, message. Returns 1 if it was written. No two writes seal
-- to the same bytes, so a call that has happened is recognised by its content.
local now = tonumber(ARGV[4])
local known = redis.call('HMGET', KEYS[1], 'v', 'u')
local version = known[1] or ''
if known[1] and tonumber(known[2]) <= now then version = '' end
local next_version = text((tonumber(ARGV[2]) or 0) + 1)
if version ~= ARGV[2] then
  local is_ours = ARGV[3] == '1' and version == next_version and redis.call('HGET', KEYS[1], 'c') == ARGV[5]
  return is_ours and 1 or 0
end
redis.call('HSET', KEYS[1], 'v', next_version, 'c', ARGV[5], 'd', ARGV[6], 'u', ARGV[7])
redis.call('PEXPIREAT', KEYS[1], text(tonumber(ARGV[7]) + clock() - now))
if ARGV[6] ~= '' then
  redis.call('ZADD', KEYS[2], ARGV[6], ARGV[1])
else
  redis.call('ZREM', KEYS[2], ARGV[1])
end
if ARGV[8] ~= '' then redis.call('PUBLISH', ARGV[8], ARGV[9]) end
return 1
