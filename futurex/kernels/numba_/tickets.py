"""What the threads of a :mod:`~futurex.kernels.numba_.team` run: callers give out tickets, helpers look for some.

The words of a team are read and written by this code; a call is one word of state: its number, behind which of its
tickets none is left, and before which one. A ticket is taken by exchanging that word, so nobody takes one of a call
that is over. The caller and every second helper take the first that is left, the others the last: of two threads each
reads at the next call what it has written at this one, which lies in its own cache.
"""

from __future__ import annotations

import platform

LOOKS, OFFERS = 400, 300
"""How often who waits looks before it sleeps: some 10 µs in a loop, then offering its processor to others each time,
100 to 200 µs."""
NAP, MORE_OFFERS = 500_000, 900
"""Nanoseconds below which a helper has slept for nothing: work came that soon; and how much more often it then offers
before it sleeps again, some 0.5 ms, until it has slept for longer than that."""
LONG, CROWDED, LOOKS_IN_CROWDS = 500_000, 1000, 1200
"""Nanoseconds after which an offered processor came back late, because somebody else wanted it; how many waits then
offer none, but sleep; and how often they look before. Who sleeps is given a processor at once when woken, who has
offered it stands in line."""
LONE = 8
"""Brief calls that let a sleeping helper sleep, one after the other, before one wakes it: waking takes the caller some
10 µs, and a brief call that comes alone is over before the helper is there."""
LINE = 8  # words, so that what different threads write lies in different lines
LOCK, STATE, CALL, DONE, FUNCTIONS, SETTINGS, WAITS, CALLER = (LINE * k for k in range(8))
HELPERS = LINE * 8
HELPER = 2 * LINE  # words of one: is it asleep, how much more often it looks; on the next line what it sleeps by
_X86, _ARM = ("void @llvm.x86.sse2.pause()",) * 2, ("void @llvm.aarch64.hint(i32)", "void @llvm.aarch64.hint(i32 1)")
_HINTS = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}
_HINT = _HINTS.get(platform.machine())
_DECLARED, _PAUSE = (f"declare {_HINT[0]}", f"call {_HINT[1]}") if _HINT else ("", "")
"""The instruction of a loop that waits: another thread of the same core, and the memory, have time for others."""

# Offer the processor, and note if it comes back late; how often to do so, which is never among many who want some.
_OFFER = f"""
define internal void @offer(ptr %team) noinline {{
entry:
  %crowd.at = getelementptr i64, ptr %team, i64 {SETTINGS + 3}
  %crowd = load atomic i64, ptr %crowd.at monotonic, align 8
  %crowded = icmp ne i64 %crowd, 0
  br i1 %crowded, label %keep, label %give
keep:
  {_PAUSE}
  ret void
give:
  %yield.at = getelementptr i64, ptr %team, i64 {FUNCTIONS + 2}
  %yield = load ptr, ptr %yield.at
  %begun = call i64 @nanoseconds(ptr %team)
  %offered = call i32 %yield()
  %ended = call i64 @nanoseconds(ptr %team)
  %took = sub i64 %ended, %begun
  %late = icmp ugt i64 %took, {LONG}
  br i1 %late, label %note, label %leave
note:
  store atomic i64 {CROWDED}, ptr %crowd.at monotonic, align 8
  br label %leave
leave:
  ret void
}}
define internal i64 @nanoseconds(ptr %team) noinline {{
  %time = alloca [2 x i64]
  %clock.at = getelementptr i64, ptr %team, i64 {FUNCTIONS + 3}
  %clock = load ptr, ptr %clock.at
  %asked = call i32 %clock(i32 1, ptr %time)
  %more.at = getelementptr i64, ptr %time, i64 1
  %seconds = load i64, ptr %time
  %more = load i64, ptr %more.at
  %whole = mul i64 %seconds, 1000000000
  %all = add i64 %whole, %more
  ret i64 %all
}}
define internal i64 @patience(ptr %team, i64 %most) {{
  %crowd.at = getelementptr i64, ptr %team, i64 {SETTINGS + 3}
  %crowd = load atomic i64, ptr %crowd.at monotonic, align 8
  %crowded = icmp ne i64 %crowd, 0
  %fewer = sub i64 %crowd, 1
  %left = select i1 %crowded, i64 %fewer, i64 0
  store atomic i64 %left, ptr %crowd.at monotonic, align 8
  %patience = select i1 %crowded, i64 {LOOKS_IN_CROWDS}, i64 %most
  ret i64 %patience
}}
"""


def _wait_on(look: str, patience: str, tired: str) -> str:
    """Look again: after a pause, later after an offer of the processor; after so many looks who waits is tired."""
    return f"""wait.on:
  %n.next = add i64 %n, 1
  %fresh = icmp ult i64 %n, {LOOKS}
  br i1 %fresh, label %pause, label %longer
pause:
  {_PAUSE}
  br label %{look}
longer:
  %patient = icmp ult i64 %n, {patience}
  br i1 %patient, label %offer, label %{tired}
offer:
  call void @offer(ptr %team)
  br label %{look}
"""


# The caller: with a kernel's code and block, and a share's word.
RUN = f"""{_DECLARED}{_OFFER}define void @region(ptr %function, ptr %block, i64 %how, ptr %team) {{
entry:
  %threads = and i64 %how, 65535
  %upper = lshr i64 %how, 16
  %tickets = and i64 %upper, 65535
  %brief = icmp uge i64 %how, 4294967296
  %entered = cmpxchg ptr %team, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{ i64, i1 }} %entered, 1
  br i1 %mine, label %begin, label %alone
alone:
  %t = phi i64 [ 0, %entry ], [ %t.next, %alone ]
  call void %function(ptr %block, i64 %t, i64 %tickets)
  %t.next = add i64 %t, 1
  %t.more = icmp ult i64 %t.next, %tickets
  br i1 %t.more, label %alone, label %leave
begin:
  %state = getelementptr i64, ptr %team, i64 {STATE}
  %function.at = getelementptr i64, ptr %team, i64 {CALL}
  %block.at = getelementptr i64, ptr %team, i64 {CALL + 1}
  %threads.at = getelementptr i64, ptr %team, i64 {CALL + 2}
  %tickets.at = getelementptr i64, ptr %team, i64 {CALL + 3}
  %done = getelementptr i64, ptr %team, i64 {DONE}
  %post.at = getelementptr i64, ptr %team, i64 {FUNCTIONS}
  %post = load ptr, ptr %post.at
  store atomic ptr %function, ptr %function.at monotonic, align 8
  store atomic ptr %block, ptr %block.at monotonic, align 8
  store atomic i64 %threads, ptr %threads.at monotonic, align 8
  store atomic i64 %tickets, ptr %tickets.at monotonic, align 8
  store atomic i64 0, ptr %done monotonic, align 8
  %old = load atomic i64, ptr %state monotonic, align 8
  %call = and i64 %old, -4294967296
  %next.call = add i64 %call, 4294967296
  %tickets.high = shl i64 %tickets, 16
  %call.tickets = or i64 %next.call, %tickets.high
  %first = or i64 %call.tickets, 1
  store atomic i64 %first, ptr %state seq_cst, align 8
  %helpers.at = getelementptr i64, ptr %team, i64 {SETTINGS}
  %there = load atomic i64, ptr %helpers.at monotonic, align 8
  %passed.at = getelementptr i64, ptr %team, i64 {SETTINGS + 2}
  %passed = load atomic i64, ptr %passed.at monotonic, align 8
  %few = icmp ult i64 %passed, {LONE}
  %let.sleep = and i1 %brief, %few
  %passed.next = add i64 %passed, 1
  %others = sub i64 %threads, 1
  %fewer = icmp ult i64 %there, %others
  %helpers = select i1 %fewer, i64 %there, i64 %others
  br label %helper
helper:
  %k = phi i64 [ 0, %begin ], [ %k.next, %waken ]
  %k.more = icmp ult i64 %k, %helpers
  br i1 %k.more, label %look, label %own
look:
  %k.words = mul i64 %k, {HELPER}
  %k.place = add i64 %k.words, {HELPERS}
  %asleep.at = getelementptr i64, ptr %team, i64 %k.place
  %asleep = load atomic i64, ptr %asleep.at seq_cst, align 8
  %sleeps = icmp ne i64 %asleep, 0
  br i1 %sleeps, label %sleeper, label %waken
sleeper:
  br i1 %let.sleep, label %pass, label %wake
pass:
  store atomic i64 %passed.next, ptr %passed.at monotonic, align 8
  br label %waken
wake:
  store atomic i64 0, ptr %passed.at monotonic, align 8
  %roused = cmpxchg ptr %asleep.at, i64 1, i64 0 seq_cst monotonic
  %rouse = extractvalue {{ i64, i1 }} %roused, 1
  br i1 %rouse, label %signal, label %waken
signal:
  %signal.at = getelementptr i64, ptr %asleep.at, i64 {LINE}
  %posted = call i32 %post(ptr %signal.at)
  br label %waken
waken:
  %k.next = add i64 %k, 1
  br label %helper
own:
  call void %function(ptr %block, i64 0, i64 %tickets)
  br label %claim
claim:
  %made = phi i64 [ 1, %own ], [ %made, %take ], [ %made.next, %taken ]
  %now = load atomic i64, ptr %state acquire, align 8
  %next = and i64 %now, 65535
  %high = lshr i64 %now, 16
  %end = and i64 %high, 65535
  %left = icmp ult i64 %next, %end
  br i1 %left, label %take, label %wait
take:
  %now.next = add i64 %now, 1
  %claimed = cmpxchg ptr %state, i64 %now, i64 %now.next acq_rel monotonic
  %is.claimed = extractvalue {{ i64, i1 }} %claimed, 1
  br i1 %is.claimed, label %taken, label %claim
taken:
  call void %function(ptr %block, i64 %next, i64 %tickets)
  %made.next = add i64 %made, 1
  br label %claim
wait:
  %others.tickets = sub i64 %tickets, %made
  %waits = getelementptr i64, ptr %team, i64 {WAITS}
  %needed.at = getelementptr i64, ptr %team, i64 {WAITS + 1}
  %caller.at = getelementptr i64, ptr %team, i64 {CALLER}
  store atomic i64 %others.tickets, ptr %needed.at monotonic, align 8
  %patience = call i64 @patience(ptr %team, i64 {LOOKS + OFFERS})
  br label %check
check:
  %n = phi i64 [ 0, %wait ], [ %n.next, %pause ], [ %n.next, %offer ], [ {LOOKS + OFFERS + LOOKS_IN_CROWDS}, %doze ],
    [ 0, %rise ]
  %finished = load atomic i64, ptr %done acquire, align 8
  %over = icmp eq i64 %finished, %others.tickets
  br i1 %over, label %unlock, label %wait.on
{_wait_on("check", "%patience", "rest")}rest:
  store atomic i64 1, ptr %waits seq_cst, align 8
  %again = load atomic i64, ptr %done seq_cst, align 8
  %came = icmp eq i64 %again, %others.tickets
  br i1 %came, label %rise, label %doze
rise:
  %risen = cmpxchg ptr %waits, i64 1, i64 0 seq_cst monotonic
  %alone.again = extractvalue {{ i64, i1 }} %risen, 1
  br i1 %alone.again, label %check, label %doze
doze:
  %sem.wait.at = getelementptr i64, ptr %team, i64 {FUNCTIONS + 1}
  %sem.wait = load ptr, ptr %sem.wait.at
  %waited = call i32 %sem.wait(ptr %caller.at)
  br label %check
unlock:
  store atomic i64 0, ptr %team release, align 8
  br label %leave
leave:
  ret void
}}
"""

# A helper: until it is sent away.
HELP = f"""{_DECLARED}{_OFFER}define void @region(ptr %team, i64 %k) {{
entry:
  %state = getelementptr i64, ptr %team, i64 {STATE}
  %function.at = getelementptr i64, ptr %team, i64 {CALL}
  %block.at = getelementptr i64, ptr %team, i64 {CALL + 1}
  %threads.at = getelementptr i64, ptr %team, i64 {CALL + 2}
  %tickets.at = getelementptr i64, ptr %team, i64 {CALL + 3}
  %done = getelementptr i64, ptr %team, i64 {DONE}
  %waits = getelementptr i64, ptr %team, i64 {WAITS}
  %needed.at = getelementptr i64, ptr %team, i64 {WAITS + 1}
  %caller.at = getelementptr i64, ptr %team, i64 {CALLER}
  %post.at = getelementptr i64, ptr %team, i64 {FUNCTIONS}
  %wait.at = getelementptr i64, ptr %team, i64 {FUNCTIONS + 1}
  %wait = load ptr, ptr %wait.at
  %post = load ptr, ptr %post.at
  %k.words = mul i64 %k, {HELPER}
  %k.place = add i64 %k.words, {HELPERS}
  %asleep.at = getelementptr i64, ptr %team, i64 %k.place
  %signal.at = getelementptr i64, ptr %asleep.at, i64 {LINE}
  %more.at = getelementptr i64, ptr %asleep.at, i64 1
  %patience.at = getelementptr i64, ptr %team, i64 {SETTINGS + 1}
  %odd = and i64 %k, 1
  %from.end = icmp eq i64 %odd, 0
  %step = select i1 %from.end, i64 -65536, i64 1
  br label %look
look:
  %n = phi i64 [ 0, %entry ], [ %n.next, %pause ], [ %n.next, %offer ], [ 0, %slept ], [ 0, %tired ], [ %n, %take ]
  %stays = phi i64 [ {LOOKS}, %entry ], [ %stays, %pause ], [ %stays, %offer ], [ {LOOKS}, %slept ],
    [ %patience, %tired ], [ %stays, %take ]
  %now = load atomic i64, ptr %state acquire, align 8
  %next = and i64 %now, 65535
  %high = lshr i64 %now, 16
  %end = and i64 %high, 65535
  %threads = load atomic i64, ptr %threads.at monotonic, align 8
  %left = icmp ult i64 %next, %end
  %rank = add i64 %k, 1
  %wanted = icmp ult i64 %rank, %threads
  %work = and i1 %left, %wanted
  br i1 %work, label %take, label %idle
take:
  %now.next = add i64 %now, %step
  %claimed = cmpxchg ptr %state, i64 %now, i64 %now.next acq_rel monotonic
  %is.claimed = extractvalue {{ i64, i1 }} %claimed, 1
  br i1 %is.claimed, label %taken, label %look
taken:
  %last = sub i64 %end, 1
  %ticket = select i1 %from.end, i64 %last, i64 %next
  %tickets = load atomic i64, ptr %tickets.at monotonic, align 8
  %function = load atomic ptr, ptr %function.at monotonic, align 8
  %block = load atomic ptr, ptr %block.at monotonic, align 8
  call void %function(ptr %block, i64 %ticket, i64 %tickets)
  br label %finished
finished:
  %before = atomicrmw add ptr %done, i64 1 seq_cst
  %so.far = add i64 %before, 1
  %waiting = load atomic i64, ptr %waits seq_cst, align 8
  %needed = load atomic i64, ptr %needed.at monotonic, align 8
  %all = icmp eq i64 %so.far, %needed
  %awaited = icmp ne i64 %waiting, 0
  %final = and i1 %all, %awaited
  br i1 %final, label %rouse, label %tired
rouse:
  %roused = cmpxchg ptr %waits, i64 1, i64 0 seq_cst monotonic
  %rouses = extractvalue {{ i64, i1 }} %roused, 1
  br i1 %rouses, label %signal, label %tired
signal:
  %posted = call i32 %post(ptr %caller.at)
  br label %tired
tired:
  %least = load atomic i64, ptr %patience.at acquire, align 8
  %more = load i64, ptr %more.at
  %limit = add i64 %least, %more
  %patience = call i64 @patience(ptr %team, i64 %limit)
  br label %look
idle:
  %settled = load atomic i64, ptr %patience.at acquire, align 8
  %over = icmp eq i64 %settled, 0
  br i1 %over, label %leave, label %wait.on
{_wait_on("look", "%stays", "sleep")}sleep:
  %fell = call i64 @nanoseconds(ptr %team)
  store atomic i64 1, ptr %asleep.at seq_cst, align 8
  %again = load atomic i64, ptr %state seq_cst, align 8
  %came = icmp ne i64 %again, %now
  br i1 %came, label %rise, label %doze
rise:
  %risen = cmpxchg ptr %asleep.at, i64 1, i64 0 seq_cst monotonic
  %alone = extractvalue {{ i64, i1 }} %risen, 1
  br i1 %alone, label %slept, label %doze
doze:
  %waited = call i32 %wait(ptr %signal.at)
  %rest = load atomic i64, ptr %patience.at acquire, align 8
  %ended = icmp eq i64 %rest, 0
  br i1 %ended, label %leave, label %woken
woken:
  %still = load atomic i64, ptr %asleep.at seq_cst, align 8
  %early = icmp ne i64 %still, 0
  br i1 %early, label %doze, label %slept
slept:
  %rose = call i64 @nanoseconds(ptr %team)
  %nap = sub i64 %rose, %fell
  %for.nothing = icmp ult i64 %nap, {NAP}
  %more.next = select i1 %for.nothing, i64 {MORE_OFFERS}, i64 0
  store i64 %more.next, ptr %more.at
  br label %look
leave:
  ret void
}}
"""
