"""The LLVM IR of the all-reduce in shared memory; what begins with a dollar sign is filled in."""

TEXT = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.x86.sse2.pause()
declare i32 @sched_yield()

define internal i64 @word(ptr %block, i64 %index) alwaysinline {
  %at = getelementptr i64, ptr %block, i64 %index
  %value = load i64, ptr %at
  ret i64 %value
}

define internal i64 @look(ptr %board, i64 %index) alwaysinline {
  %at = getelementptr i64, ptr %board, i64 %index
  %value = load atomic i64, ptr %at acquire, align 8
  ret i64 %value
}

define internal void @tell(ptr %board, i64 %index, i64 %value) alwaysinline {
  %at = getelementptr i64, ptr %board, i64 %index
  store atomic i64 %value, ptr %at release, align 8
  ret void
}

define internal ptr @base(ptr %control, i64 %rank) alwaysinline {
  %index = add i64 %rank, $BASES
  %value = call i64 @word(ptr %control, i64 %index)
  %pointer = inttoptr i64 %value to ptr
  ret ptr %pointer
}

; whether a word of any other rank's board is set
define internal i1 @any(ptr %control, i64 %index) {
start:
  %ranks = call i64 @word(ptr %control, i64 $RANKS)
  %me = call i64 @word(ptr %control, i64 $ME)
  br label %head
head:
  %rank = phi i64 [0, %start], [%next, %on]
  %more = icmp ult i64 %rank, %ranks
  br i1 %more, label %test, label %none
test:
  %self = icmp eq i64 %rank, %me
  br i1 %self, label %on, label %read
read:
  %board = call ptr @base(ptr %control, i64 %rank)
  %value = call i64 @look(ptr %board, i64 %index)
  %set = icmp ne i64 %value, 0
  br i1 %set, label %found, label %on
on:
  %next = add i64 %rank, 1
  br label %head
found:
  ret i1 true
none:
  ret i1 false
}

define internal void @sum(ptr %out, ptr %a, ptr %b, i64 %count) {
start:
  %whole = and i64 %count, -$lanes
  br label %head
head:
  %i = phi i64 [0, %start], [%i2, %body]
  %more = icmp ult i64 %i, %whole
  br i1 %more, label %body, label %tail
body:
  %pa = getelementptr $T, ptr %a, i64 %i
  %pb = getelementptr $T, ptr %b, i64 %i
  %po = getelementptr $T, ptr %out, i64 %i
  %va = load $V, ptr %pa, align $size
  %vb = load $V, ptr %pb, align $size
  %vs = $add $V %va, %vb
  store $V %vs, ptr %po, align $size
  %i2 = add i64 %i, $lanes
  br label %head
tail:
  %j = phi i64 [%whole, %head], [%j2, %one]
  %left = icmp ult i64 %j, %count
  br i1 %left, label %one, label %end
one:
  %qa = getelementptr $T, ptr %a, i64 %j
  %qb = getelementptr $T, ptr %b, i64 %j
  %qo = getelementptr $T, ptr %out, i64 %j
  %sa = load $T, ptr %qa
  %sb = load $T, ptr %qb
  %ss = $add $T %sa, %sb
  store $T %ss, ptr %qo
  %j2 = add i64 %j, 1
  br label %tail
end:
  ret void
}

; where the vector of a rank begins as far as a block is concerned: on its board, or where the board says; a rank that
; shows a few blocks at a time has each where an earlier one was
define internal ptr @vector(ptr %control, i64 %rank, i64 %at, i64 %closing, i64 %slot, i64 %block) {
  %board = call ptr @base(ptr %control, i64 %rank)
  %where = add i64 %at, 5
  %told = call i64 @word(ptr %board, i64 %where)
  %eager = mul i64 %slot, $eager_bytes
  %eager2 = add i64 %eager, $eager_start
  %elsewhere = icmp ne i64 %closing, 0
  %offset = select i1 %elsewhere, i64 %told, i64 %eager2
  %vector = getelementptr i8, ptr %board, i64 %offset
  %around = add i64 %at, 6
  %ring = call i64 @word(ptr %board, i64 %around)
  %place = urem i64 %block, %ring
  %back = sub i64 %place, %block
  %length = call i64 @word(ptr %control, i64 $BLOCK)
  %shift = mul i64 %back, %length
  %seen = getelementptr $T, ptr %vector, i64 %shift
  ret ptr %seen
}

; out[low:high] becomes the sum over the ranks, in their order
define internal void @total(ptr %control, ptr %out, i64 %low, i64 %high, i64 %at, i64 %closing, i64 %slot, i64 %block) {
start:
  %ranks = call i64 @word(ptr %control, i64 $RANKS)
  %scratch.word = call i64 @word(ptr %control, i64 $SCRATCH)
  %scratch = inttoptr i64 %scratch.word to ptr
  %v0 = call ptr @vector(ptr %control, i64 0, i64 %at, i64 %closing, i64 %slot, i64 %block)
  %v1 = call ptr @vector(ptr %control, i64 1, i64 %at, i64 %closing, i64 %slot, i64 %block)
  %pair = icmp eq i64 %ranks, 2
  %last = sub i64 %ranks, 1
  br i1 %pair, label %two, label %head
two:
  %a0 = getelementptr $T, ptr %v0, i64 %low
  %a1 = getelementptr $T, ptr %v1, i64 %low
  %ao = getelementptr $T, ptr %out, i64 %low
  %all = sub i64 %high, %low
  call void @sum(ptr %ao, ptr %a0, ptr %a1, i64 %all)
  ret void
head:
  %from = phi i64 [%low, %start], [%from2, %finish]
  %more = icmp ult i64 %from, %high
  br i1 %more, label %chunk, label %end
chunk:
  %left = sub i64 %high, %from
  %short = icmp ult i64 %left, $chunk
  %count = select i1 %short, i64 %left, i64 $chunk
  %b0 = getelementptr $T, ptr %v0, i64 %from
  %b1 = getelementptr $T, ptr %v1, i64 %from
  call void @sum(ptr %scratch, ptr %b0, ptr %b1, i64 %count)
  br label %next
next:
  %rank = phi i64 [2, %chunk], [%rank2, %middle]
  %vr = call ptr @vector(ptr %control, i64 %rank, i64 %at, i64 %closing, i64 %slot, i64 %block)
  %br = getelementptr $T, ptr %vr, i64 %from
  %is.last = icmp eq i64 %rank, %last
  br i1 %is.last, label %finish, label %middle
middle:
  call void @sum(ptr %scratch, ptr %scratch, ptr %br, i64 %count)
  %rank2 = add i64 %rank, 1
  br label %next
finish:
  %bo = getelementptr $T, ptr %out, i64 %from
  call void @sum(ptr %bo, ptr %scratch, ptr %br, i64 %count)
  %from2 = add i64 %from, %count
  br label %head
end:
  ret void
}

; where the slice of a rank in a block begins; that of the rank behind the last is the end of the block
define internal i64 @bound(ptr %control, i64 %block, i64 %rank) {
  %count = call i64 @word(ptr %control, i64 $COUNT)
  %ranks = call i64 @word(ptr %control, i64 $RANKS)
  %length = call i64 @word(ptr %control, i64 $BLOCK)
  %start = mul i64 %block, %length
  %left = sub i64 %count, %start
  %short = icmp ult i64 %left, %length
  %here = select i1 %short, i64 %left, i64 %length
  %units = udiv i64 %here, $align
  %share = mul i64 %units, %rank
  %part = udiv i64 %share, %ranks
  %inside = mul i64 %part, $align
  %whole = icmp eq i64 %rank, %ranks
  %offset = select i1 %whole, i64 %here, i64 %inside
  %bound = add i64 %start, %offset
  ret i64 %bound
}

; copy what the ranks have added up of a block; one's own part where sums and results lie apart
define internal void @collect(ptr %control, ptr %out, i64 %block, i64 %at) {
start:
  %ranks = call i64 @word(ptr %control, i64 $RANKS)
  %me = call i64 @word(ptr %control, i64 $ME)
  %data.word = call i64 @word(ptr %control, i64 $DATA)
  %out.word = ptrtoint ptr %out to i64
  %apart = icmp ne i64 %data.word, %out.word
  %k0 = select i1 %apart, i64 0, i64 1
  br label %head
head:
  %k = phi i64 [%k0, %start], [%k2, %body]
  %more = icmp ult i64 %k, %ranks
  br i1 %more, label %body, label %end
body:
  %ahead = add i64 %me, %k
  %rank = urem i64 %ahead, %ranks
  %following = add i64 %rank, 1
  %low = call i64 @bound(ptr %control, i64 %block, i64 %rank)
  %high = call i64 @bound(ptr %control, i64 %block, i64 %following)
  %vector = call ptr @vector(ptr %control, i64 %rank, i64 %at, i64 1, i64 0, i64 %block)
  %from = getelementptr $T, ptr %vector, i64 %low
  %to = getelementptr $T, ptr %out, i64 %low
  %count = sub i64 %high, %low
  %bytes = mul i64 %count, $size
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  %k2 = add i64 %k, 1
  br label %head
end:
  ret void
}

; copy a block of what is to be summed to where the others see it, if that is elsewhere and there is such a block
define internal void @bring(ptr %control, i64 %block) {
start:
  %source.word = call i64 @word(ptr %control, i64 $SOURCE)
  %source = inttoptr i64 %source.word to ptr
  %apart = icmp ne i64 %source.word, 0
  %count = call i64 @word(ptr %control, i64 $COUNT)
  %length = call i64 @word(ptr %control, i64 $BLOCK)
  %low = mul i64 %block, %length
  %inside = icmp ult i64 %low, %count
  %copies = and i1 %apart, %inside
  br i1 %copies, label %copy, label %end
copy:
  %left = sub i64 %count, %low
  %short = icmp ult i64 %left, %length
  %here = select i1 %short, i64 %left, i64 %length
  %bytes = mul i64 %here, $size
  %ring = call i64 @word(ptr %control, i64 $RING)
  %place = urem i64 %block, %ring
  %start.at = mul i64 %place, %length
  %data.word = call i64 @word(ptr %control, i64 $DATA)
  %data = inttoptr i64 %data.word to ptr
  %to = getelementptr $T, ptr %data, i64 %start.at
  %from = getelementptr $T, ptr %source, i64 %low
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  br label %end
end:
  ret void
}

define internal void @run(ptr %control, i64 %stage, i64 %at, i64 %closing, i64 %slot) {
start:
  %out.word = call i64 @word(ptr %control, i64 $OUT)
  %out = inttoptr i64 %out.word to ptr
  %count = call i64 @word(ptr %control, i64 $COUNT)
  %stages = call i64 @word(ptr %control, i64 $STAGES)
  %me = call i64 @word(ptr %control, i64 $ME)
  %eager = icmp eq i64 %closing, 0
  br i1 %eager, label %small, label %large
small:
  call void @total(ptr %control, ptr %out, i64 0, i64 %count, i64 %at, i64 0, i64 %slot, i64 0)
  ret void
large:
  %later = icmp ugt i64 %stage, 1
  br i1 %later, label %gather, label %reduce
gather:
  %done = sub i64 %stage, 2
  call void @collect(ptr %control, ptr %out, i64 %done, i64 %at)
  %more = icmp ult i64 %stage, %stages
  br i1 %more, label %reduce, label %end
reduce:
  %block = sub i64 %stage, 1
  %following = add i64 %me, 1
  %low = call i64 @bound(ptr %control, i64 %block, i64 %me)
  %high = call i64 @bound(ptr %control, i64 %block, i64 %following)
  call void @bring(ptr %control, i64 %stage)
  %data = call ptr @vector(ptr %control, i64 %me, i64 %at, i64 1, i64 %slot, i64 %block)
  call void @total(ptr %control, ptr %data, i64 %low, i64 %high, i64 %at, i64 1, i64 %slot, i64 %block)
  br label %end
end:
  ret void
}

; wait until every other rank's stamp has reached a value; false if that takes too long
define internal i1 @meet(ptr %control, i64 %at, i64 %low, i64 %width) {
start:
  %ranks = call i64 @word(ptr %control, i64 $RANKS)
  %me = call i64 @word(ptr %control, i64 $ME)
  %spins = call i64 @word(ptr %control, i64 $SPINS)
  %yields = call i64 @word(ptr %control, i64 $YIELDS)
  %polite = icmp ne i64 %yields, 0
  br label %head
head:
  %rank = phi i64 [0, %start], [%next, %on]
  %spent = phi i64 [0, %start], [%spent.on, %on]
  %more = icmp ult i64 %rank, %ranks
  br i1 %more, label %test, label %met
test:
  %self = icmp eq i64 %rank, %me
  br i1 %self, label %on, label %poll
poll:
  %turn = phi i64 [%spent, %test], [%turn2, %again]
  %board = call ptr @base(ptr %control, i64 %rank)
  %stamp = call i64 @look(ptr %board, i64 %at)
  %ahead = sub i64 %stamp, %low
  %reached = icmp ult i64 %ahead, %width
  br i1 %reached, label %on, label %miss
miss:
  %over = icmp uge i64 %turn, %spins
  br i1 %over, label %late, label %rest
rest:
  %count = and i64 %turn, $between
  %often = icmp eq i64 %count, $between
  %give = or i1 %polite, %often
  br i1 %give, label %yield, label %pause
yield:
  %ignored = call i32 @sched_yield()
  br label %again
pause:
  call void @llvm.x86.sse2.pause()
  br label %again
again:
  %turn2 = add i64 %turn, 1
  br label %poll
on:
  %spent.on = phi i64 [%spent, %test], [%turn, %poll]
  %next = add i64 %rank, 1
  br label %head
met:
  ret i1 true
late:
  ret i1 false
}

; say which stage this rank has come to; whether another one sleeps that waits for it
define internal i1 @announce(ptr %control, i64 %at, i64 %number, i64 %stage) {
start:
  %ranks = call i64 @word(ptr %control, i64 $RANKS)
  %me = call i64 @word(ptr %control, i64 $ME)
  %mine = call ptr @base(ptr %control, i64 %me)
  %first = shl i64 %number, $stage_bits
  %stamp = or i64 %first, %stage
  %after = add i64 %number, 1
  %last = shl i64 %after, $stage_bits
  %width = sub i64 %last, %stamp
  call void @tell(ptr %mine, i64 %at, i64 %stamp)
  fence seq_cst
  br label %head
head:
  %rank = phi i64 [0, %start], [%next, %on]
  %more = icmp ult i64 %rank, %ranks
  br i1 %more, label %test, label %none
test:
  %self = icmp eq i64 %rank, %me
  br i1 %self, label %on, label %read
read:
  %board = call ptr @base(ptr %control, i64 %rank)
  %asleep = call i64 @look(ptr %board, i64 $asleep)
  %sleeps = icmp ne i64 %asleep, 0
  br i1 %sleeps, label %waits, label %on
waits:
  %theirs = call i64 @look(ptr %board, i64 %at)
  %ahead = sub i64 %theirs, %stamp
  %came = icmp ult i64 %ahead, %width
  br i1 %came, label %found, label %on
on:
  %next = add i64 %rank, 1
  br label %head
found:
  ret i1 true
none:
  ret i1 false
}

define i64 @advance(ptr %control) {
start:
  %number = call i64 @word(ptr %control, i64 $NUMBER)
  %first = call i64 @word(ptr %control, i64 $STAGE)
  %closing = call i64 @word(ptr %control, i64 $CLOSING)
  %stages = call i64 @word(ptr %control, i64 $STAGES)
  %ranks = call i64 @word(ptr %control, i64 $RANKS)
  %me = call i64 @word(ptr %control, i64 $ME)
  %kind = call i64 @word(ptr %control, i64 $KIND)
  %step = call i64 @word(ptr %control, i64 $STEP)
  %tag = call i64 @word(ptr %control, i64 $TAG)
  %step.part = mul i64 %step, $step_factor
  %tag.part = mul i64 %tag, $tag_factor
  %parts = add i64 %step.part, %tag.part
  %signature = add i64 %kind, %parts
  %mine = call ptr @base(ptr %control, i64 %me)
  %slot = urem i64 %number, $slots
  %slot.at = mul i64 %slot, $slot_words
  %at = add i64 %slot.at, $first_slot
  %at.signature = add i64 %at, 1
  %keep = getelementptr i64, ptr %control, i64 $STAGE
  %fresh = icmp eq i64 %first, 0
  br i1 %fresh, label %room, label %enter
room:
  %rank = phi i64 [0, %start], [%rank2, %room.on]
  %more = icmp ult i64 %rank, %ranks
  br i1 %more, label %room.test, label %show
room.test:
  %self = icmp eq i64 %rank, %me
  br i1 %self, label %room.on, label %room.read
room.read:
  %board = call ptr @base(ptr %control, i64 %rank)
  %oldest = call i64 @look(ptr %board, i64 $oldest)
  %reach = add i64 %oldest, $slots
  %fits = icmp ugt i64 %reach, %number
  br i1 %fits, label %room.on, label %crowded
room.on:
  %rank2 = add i64 %rank, 1
  br label %room
crowded:
  ret i64 $S_CROWDED
show:
  %nbytes = call i64 @word(ptr %control, i64 $NBYTES)
  %eager = icmp eq i64 %closing, 0
  br i1 %eager, label %copy, label %bring
copy:
  %data.word = call i64 @word(ptr %control, i64 $DATA)
  %data = inttoptr i64 %data.word to ptr
  %target = call ptr @vector(ptr %control, i64 %me, i64 %at, i64 0, i64 %slot, i64 0)
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %data, i64 %nbytes, i1 false)
  br label %facts
bring:
  call void @bring(ptr %control, i64 0)
  br label %facts
facts:
  %ring.word = call i64 @word(ptr %control, i64 $RING)
  %offset = call i64 @word(ptr %control, i64 $OFFSET)
  %at2 = add i64 %at, 2
  %at3 = add i64 %at, 3
  %at4 = add i64 %at, 4
  %at5 = add i64 %at, 5
  %at6 = add i64 %at, 6
  call void @tell(ptr %mine, i64 %at.signature, i64 %signature)
  call void @tell(ptr %mine, i64 %at2, i64 %step)
  call void @tell(ptr %mine, i64 %at3, i64 %tag)
  call void @tell(ptr %mine, i64 %at4, i64 %nbytes)
  call void @tell(ptr %mine, i64 %at5, i64 %offset)
  call void @tell(ptr %mine, i64 %at6, i64 %ring.word)
  store i64 1, ptr %keep
  %ring1 = call i1 @announce(ptr %control, i64 %at, i64 %number, i64 1)
  br i1 %ring1, label %ring, label %enter
ring:
  ret i64 $S_RING
enter:
  %began = phi i64 [%first, %start], [1, %facts]
  br label %loop
loop:
  %stage = phi i64 [%began, %enter], [%stage2, %go]
  %base = shl i64 %number, $stage_bits
  %low = or i64 %base, %stage
  %after = add i64 %number, 1
  %high = shl i64 %after, $stage_bits
  %width = sub i64 %high, %low
  %all = call i1 @meet(ptr %control, i64 %at, i64 %low, i64 %width)
  br i1 %all, label %met, label %pending
pending:
  ret i64 $S_PENDING
met:
  %opening = icmp eq i64 %stage, 1
  br i1 %opening, label %check, label %work
check:
  %other = phi i64 [0, %met], [%other2, %check.on]
  %others = icmp ult i64 %other, %ranks
  br i1 %others, label %check.read, label %work
check.read:
  %theirs = call ptr @base(ptr %control, i64 %other)
  %said = call i64 @look(ptr %theirs, i64 %at.signature)
  %same = icmp eq i64 %said, %signature
  br i1 %same, label %check.on, label %mismatch
check.on:
  %other2 = add i64 %other, 1
  br label %check
mismatch:
  ret i64 $S_MISMATCH
work:
  %busy = icmp ule i64 %stage, %stages
  br i1 %busy, label %do, label %then
do:
  call void @run(ptr %control, i64 %stage, i64 %at, i64 %closing, i64 %slot)
  br label %then
then:
  %final = add i64 %stages, %closing
  %open = icmp ult i64 %stage, %final
  br i1 %open, label %go.on, label %done
go.on:
  %stage2 = add i64 %stage, 1
  store i64 %stage2, ptr %keep
  %ring2 = call i1 @announce(ptr %control, i64 %at, i64 %number, i64 %stage2)
  br i1 %ring2, label %ring, label %go
go:
  br label %loop
done:
  ret i64 $S_DONE
}

; WHOLE: the only exchange of this rank; it is awake for it alone
define void @region(ptr %control) {
start:
  %whole.word = call i64 @word(ptr %control, i64 $WHOLE)
  %whole = icmp ne i64 %whole.word, 0
  %me = call i64 @word(ptr %control, i64 $ME)
  %mine = call ptr @base(ptr %control, i64 %me)
  br i1 %whole, label %wake, label %call
wake:
  call void @tell(ptr %mine, i64 $asleep, i64 0)
  br label %call
call:
  %found = call i64 @advance(ptr %control)
  %done = icmp eq i64 %found, $S_DONE
  %end = and i1 %done, %whole
  br i1 %end, label %close, label %out
close:
  %number = call i64 @word(ptr %control, i64 $NUMBER)
  %after = add i64 %number, 1
  call void @tell(ptr %mine, i64 $oldest, i64 %after)
  call void @tell(ptr %mine, i64 $asleep, i64 1)
  fence seq_cst
  %waits = call i1 @any(ptr %control, i64 $crowded)
  %status = select i1 %waits, i64 $S_DONE_RING, i64 $S_DONE
  br label %out
out:
  %value = phi i64 [%found, %call], [%status, %close]
  %place = getelementptr i64, ptr %control, i64 $STATUS
  store i64 %value, ptr %place
  ret void
}
"""
