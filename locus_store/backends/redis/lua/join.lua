-- Puts one field in place of the fifty blocks up to a number, if nothing was removed, or joined, since they were read. Their
-- entries stay what they are, so the epoch does; but a removal that was planned before must be planned again.
local number, removals, epoch, joined = tonumber(arg()), arg(), arg(), arg()
local f = call('HMGET', H, 's', 'e', 'g')
if (f[1] or '0') ~= removals or (f[2] or '0') ~= epoch then return 0 end
local names = {}
for one = number - 49, number do names[#names + 1] = 'b' .. text(one) end
-- The first command that writes is one that a server without memory refuses, and so all or nothing is done.
call('HSET', H, 'j' .. text(number), joined)
call('HDEL', H, unpack(names))
call('HINCRBY', H, 's', 1)
call('HINCRBY', H, 'g', 1)
return 1
