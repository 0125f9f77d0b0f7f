-- The record of a flow is one hash beside its claims:
--
--   st  status: W working, Q waiting, C completed, F failed, X cancelled, D deleted: cancelled, and nothing else is kept
--   me  method   ta  target   pr  principal   cr  created   ch  changed   dl  deadline   rd  round
--   op  keys of open questions   ou  open until   ku  kept until   ow  owner   ol  end of its lease   ks  key ids
--   tl  timeline, 13 bytes an entry   p0, p1, ...  the sealed parts
--
-- Beside all records of a prefix there are sorted sets of ids: `all` and `open` by creation, `due` by `ku`, and, to count
-- them, one for each status and target: `by:<st>:<ta>`, by `ou` of open records and by `ku` of others. `targets` has the
-- targets. Changes are published on `watch` as the status and the id. These keys are on other nodes than the record, so a register needs a
-- Redis that is not a cluster.
--
-- A change is 20 arguments, from a first one on: record, indexes, id, me, ta, pr, cr, ch, dl, st, rd, op, ou, ku, ow, ol,
-- ks, the entry of the timeline, the number of a part and its bytes.

local ENTRY, MOST, REFUSALS_UP_TO = 13, 64, 32
local LETTERS = 'WQCFX'

-- The ids of records with a status and a target.
local function by(index, status, target)
  return index .. ':by:' .. status .. ':' .. target
end

local function is_open(status)
  return status == 'W' or status == 'Q'
end

local function tell(index, id, status)
  redis.call('PUBLISH', index .. ':watch', status .. id)
end

local function entered(timeline, entry)
  return string.sub((timeline or '') .. entry, -(MOST * ENTRY))
end

-- Keeps a record until then by the caller's clock, and by this server's.
local function keep_record(key, index, id, now, until_then)
  redis.call('ZADD', index .. ':due', until_then, id)
  redis.call('PEXPIREAT', key, text(until_then + clock() - now))
end

-- Counts a record by its status and target, and no longer by those before.
local function count_as(index, id, target, before, status, until_then)
  if before and before ~= status then redis.call('ZREM', by(index, before, target), id) end
  redis.call('ZADD', by(index, status, target), until_then, id)
  redis.call('ZADD', index .. ':targets', 0, target)
end

local function apply(first)
  local key, index, id = ARGV[first], ARGV[first + 1], ARGV[first + 2]
  local known = redis.call('HMGET', key, 'cr', 'ks', 'tl', 'st', 'ta')
  local created, keys = known[1], known[2] or ''
  if not created then
    created = ARGV[first + 6]
    redis.call('HSET', key, 'me', ARGV[first + 3], 'ta', ARGV[first + 4], 'pr', ARGV[first + 5], 'cr', created)
    redis.call('ZADD', index .. ':all', created, id)
  end
  local more = ARGV[first + 16]
  for at = 1, #more, 8 do
    local key_id = string.sub(more, at, at + 7)
    local is_known = false
    for other = 1, #keys, 8 do
      is_known = is_known or string.sub(keys, other, other + 7) == key_id
    end
    if not is_known then keys = keys .. key_id end
  end
  local status = ARGV[first + 9]
  redis.call('HSET', key, 'ch', ARGV[first + 7], 'dl', ARGV[first + 8], 'st', status, 'rd', ARGV[first + 10],
    'op', ARGV[first + 11], 'ou', ARGV[first + 12], 'ku', ARGV[first + 13], 'ow', ARGV[first + 14],
    'ol', ARGV[first + 15], 'ks', keys, 'tl', entered(known[3], ARGV[first + 17]))
  if ARGV[first + 18] ~= '' then
    redis.call('HSET', key, 'p' .. ARGV[first + 18], ARGV[first + 19])
  end
  if is_open(status) then
    redis.call('ZADD', index .. ':open', created, id)
  else
    redis.call('ZREM', index .. ':open', id)
  end
  count_as(index, id, known[5] or ARGV[first + 4], known[4], status,
    is_open(status) and ARGV[first + 12] or ARGV[first + 13])
  keep_record(key, index, id, tonumber(ARGV[first + 7]), tonumber(ARGV[first + 13]))
  tell(index, id, status)
end

-- Ends a record. What only an open one needs goes.
local function end_record(key, index, id, status, now, entry)
  local known = redis.call('HMGET', key, 'tl', 'st', 'ta', 'ku')
  redis.call('HSET', key, 'st', status, 'ch', text(now), 'op', '', 'ow', '', 'ol', '', 'tl', entered(known[1], entry))
  count_as(index, id, known[3], known[2], status, known[4])
  redis.call('ZREM', index .. ':open', id)
  tell(index, id, status)
end

-- Enters that a leg was refused. A record whose round is lost for good has failed.
local function refuse(first, station)
  local key = ARGV[first]
  local known = redis.call('HMGET', key, 'st', 'rd', 'tl')
  if not known[1] then return end
  local entry = ARGV[first + 17]
  local leg, at = string.sub(entry, 1, 4), string.sub(entry, 6)
  if station == 7 and known[1] == 'W' and known[2] == ARGV[first + 10] then
    end_record(key, ARGV[first + 1], ARGV[first + 2], 'F', tonumber(ARGV[first + 7]), leg .. string.char(4) .. at)
  elseif #known[3] < REFUSALS_UP_TO * ENTRY then
    redis.call('HSET', key, 'tl', known[3] .. leg .. string.char(station) .. at)
  end
end

local function remove(key, index, id)
  local known = redis.call('HMGET', key, 'st', 'ta')
  if known[2] then
    redis.call('ZREM', by(index, known[1], known[2]), id)
  else
    -- Redis has removed the record when its time was over.
    for _, target in ipairs(redis.call('ZRANGE', index .. ':targets', 0, -1)) do
      for letter in string.gmatch(LETTERS, '.') do redis.call('ZREM', by(index, letter, target), id) end
    end
  end
  redis.call('DEL', key)
  for _, set in ipairs({':all', ':open', ':due'}) do
    redis.call('ZREM', index .. set, id)
  end
end

-- ARGV: record, indexes, id, prefix of the keys of the flow, now, retention, slack, now in 8 bytes. Returns the status
-- before, E for an open record whose time is over, or nothing if there is no record.
local function cancel()
  local key, index, id, now = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5])
  local known = redis.call('HMGET', key, 'st', 'ou', 'rd')
  if not known[1] or known[1] == 'D' then return '' end
  if not is_open(known[1]) then return known[1] end
  local open_until = tonumber(known[2])
  if open_until <= now then return 'E' end
  local round = tonumber(known[3])
  local claim = ARGV[4] .. ':r' .. text(round)
  if redis.call('HGET', claim, 's') == 'R' then
    redis.call('HSET', claim, 's', 'X')
    redis.call('HDEL', claim, 'a', 'l', 'n')
  end
  local leg = string.char(math.floor(round / 16777216) % 256, math.floor(round / 65536) % 256,
    math.floor(round / 256) % 256, round % 256)
  end_record(key, index, id, 'X', now, leg .. string.char(5) .. ARGV[8])
  local kept_until = math.max(now + tonumber(ARGV[6]), open_until + tonumber(ARGV[7]))
  redis.call('HSET', key, 'ku', text(kept_until))
  count_as(index, id, redis.call('HGET', key, 'ta'), 'X', 'X', text(kept_until))
  keep_record(key, index, id, now, kept_until)
  return known[1]
end

