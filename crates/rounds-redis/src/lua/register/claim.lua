-- `step` is the claim itself. ARGV from 10 on: the record, or a whole change.
local status = redis.call('HGET', ARGV[10], 'st')
if status == 'X' or status == 'D' then return {'cancelled'} end
local claimed = step()
if ARGV[11] then
  if claimed[1] == 'fresh' then
    apply(10)
  elseif claimed[1] == 'other' then
    refuse(10, 6)
  elseif claimed[1] == 'dead' then
    refuse(10, 7)
  end
end
return claimed
