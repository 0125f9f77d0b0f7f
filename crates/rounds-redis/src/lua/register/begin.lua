-- ARGV: 1 and the claim, now, until and state that spills, or 0; then the change.
local first = 2
if ARGV[1] == '1' then
  spill(ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5])
  first = 6
end
apply(first)
return 1
