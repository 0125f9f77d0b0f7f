-- `step` frees the claim. ARGV from 2 on: the change.
local freed = step()
if freed == 1 then apply(2) end
return freed
