"""The LLVM IR of the runner that `workers` compiles: threads, the hand-out of tasks, the wait between steps.

`left`, the chunks that nobody has taken, is the one word that threads fight over: who decrements it from a positive
value has a chunk. A step's other fields are read only after that, and a step ends only when all of its taken chunks
are done, so they hold still for as long as somebody looks at them. A thread that overslept a step takes from the
current one or finds nothing; it cannot tell the difference and need not.

To sleep, a thread says so (`asleep`, `waiting`) and looks once more before it waits; the other side changes what is
looked at, then looks whether anyone said so. Both orders are sequentially consistent, so no wake-up is lost.

Not for kernels: those come from codegen.
"""

STATE_BYTES = 1024  # %Pool; what different threads write is 128 bytes apart
SETTINGS = slice(384, 416)  # spin, scratch, stride, threads: written by Python while no program runs
CHUNKS_PER_THREAD = 4  # few, as each costs two atomic operations; several, so that threads finish together

# One turn of a spinning loop, as the processor likes it.
_PAUSE = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
}
_DECLARE_PAUSE = {
    "x86_64": "declare void @llvm.x86.sse2.pause()",
    "aarch64": "declare void @llvm.aarch64.hint(i32)",
}

_RUNNER = """
%Pool = type {
  i64, ptr, ptr, ptr, i64, i64, i64, [72 x i8],  ; 0 left, 1 fn, 2 bufs, 3 vars, 4 tasks, 5 chunk size, 6 chunks
  i64, [120 x i8],                               ; 8 done: chunks of this step that are done
  i64, i64, i64, [104 x i8],                     ; 10 asleep, 11 stop, 12 waiting
  i64, ptr, i64, i64, [96 x i8],                 ; 14 spin, 15 scratch, 16 stride, 17 threads
  [128 x i8], [128 x i8], [128 x i8]             ; 19 mutex, 20 wake (work or stop), 21 finished (done == chunks)
}
%Step = type { ptr, ptr, ptr, ptr }              ; fn, tasks, bufs, vars
%Worker = type { ptr, i64, i64, i64 }            ; pool, index, pthread_t, unused

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(ptr, ptr)
declare i64 @llvm.umin.i64(i64, i64)
DECLARE_PAUSE

; Take one chunk of the current step and run it; false when there is none.
define internal i1 @take(ptr %pool, i64 %index) {
entry:
  %seen = load atomic i64, ptr %pool monotonic, align 8  ; spinning must only read: a write would steal the line
  %some = icmp sgt i64 %seen, 0
  br i1 %some, label %claim, label %nothing
claim:
  %left = atomicrmw sub ptr %pool, i64 1 acq_rel
  %mine = icmp sgt i64 %left, 0
  br i1 %mine, label %run, label %nothing
nothing:
  ret i1 false
run:
  %fn.p = getelementptr %Pool, ptr %pool, i32 0, i32 1
  %bufs.p = getelementptr %Pool, ptr %pool, i32 0, i32 2
  %vars.p = getelementptr %Pool, ptr %pool, i32 0, i32 3
  %tasks.p = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %size.p = getelementptr %Pool, ptr %pool, i32 0, i32 5
  %chunks.p = getelementptr %Pool, ptr %pool, i32 0, i32 6
  %done.p = getelementptr %Pool, ptr %pool, i32 0, i32 8
  %fn = load ptr, ptr %fn.p
  %bufs = load ptr, ptr %bufs.p
  %vars = load ptr, ptr %vars.p
  %tasks = load i64, ptr %tasks.p
  %size = load i64, ptr %size.p
  %chunks = load i64, ptr %chunks.p
  %number = sub i64 %chunks, %left
  %begin = mul i64 %number, %size
  %full = add i64 %begin, %size
  %end = call i64 @llvm.umin.i64(i64 %full, i64 %tasks)
  %scratch = call ptr @scratch(ptr %pool, i64 %index)
  call void %fn(ptr %bufs, ptr %vars, i64 %begin, i64 %end, ptr %scratch)
  %before = atomicrmw add ptr %done.p, i64 1 seq_cst
  %after = add i64 %before, 1
  %last = icmp eq i64 %after, %chunks
  br i1 %last, label %finish, label %took
finish:
  %waiting.p = getelementptr %Pool, ptr %pool, i32 0, i32 12
  %waiting = load atomic i64, ptr %waiting.p seq_cst, align 8
  %alone = icmp eq i64 %waiting, 0
  br i1 %alone, label %took, label %tell
tell:
  %mutex = getelementptr %Pool, ptr %pool, i32 0, i32 19
  %finished = getelementptr %Pool, ptr %pool, i32 0, i32 21
  call i32 @pthread_mutex_lock(ptr %mutex)
  call i32 @pthread_cond_signal(ptr %finished)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %took
took:
  ret i1 true
}

define internal ptr @scratch(ptr %pool, i64 %index) alwaysinline {
  %scratch.p = getelementptr %Pool, ptr %pool, i32 0, i32 15
  %stride.p = getelementptr %Pool, ptr %pool, i32 0, i32 16
  %scratch = load ptr, ptr %scratch.p
  %stride = load i64, ptr %stride.p
  %offset = mul i64 %index, %stride
  %mine = getelementptr i8, ptr %scratch, i64 %offset
  ret ptr %mine
}

; A worker: take while there is something to take, spin for more, then sleep.
define internal ptr @work(ptr %self) {
entry:
  %pool = load ptr, ptr %self
  %index.p = getelementptr %Worker, ptr %self, i32 0, i32 1
  %index = load i64, ptr %index.p
  %spin.p = getelementptr %Pool, ptr %pool, i32 0, i32 14
  %asleep.p = getelementptr %Pool, ptr %pool, i32 0, i32 10
  %stop.p = getelementptr %Pool, ptr %pool, i32 0, i32 11
  %mutex = getelementptr %Pool, ptr %pool, i32 0, i32 19
  %wake = getelementptr %Pool, ptr %pool, i32 0, i32 20
  %spin = load i64, ptr %spin.p
  br label %awake
awake:
  br label %try
try:
  %turn = phi i64 [ 0, %awake ], [ %next, %again ]
  %took = call i1 @take(ptr %pool, i64 %index)
  br i1 %took, label %awake, label %again
again:
  PAUSE
  %next = add i64 %turn, 1
  %tired = icmp uge i64 %next, %spin
  br i1 %tired, label %rest, label %try
rest:
  call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i64 1, ptr %asleep.p seq_cst, align 8
  %stop = load atomic i64, ptr %stop.p seq_cst, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %leave, label %recheck
recheck:
  %left = load atomic i64, ptr %pool seq_cst, align 8
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %up, label %sleep
sleep:
  call i32 @pthread_cond_wait(ptr %wake, ptr %mutex)
  br label %up
up:
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %awake
leave:
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret ptr null
}

; Run `count` steps in order; returns when the last is done.
define void @minivt_run(ptr %pool, ptr %steps, i64 %count) {
entry:
  %fn.p = getelementptr %Pool, ptr %pool, i32 0, i32 1
  %bufs.p = getelementptr %Pool, ptr %pool, i32 0, i32 2
  %vars.p = getelementptr %Pool, ptr %pool, i32 0, i32 3
  %tasks.p = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %size.p = getelementptr %Pool, ptr %pool, i32 0, i32 5
  %chunks.p = getelementptr %Pool, ptr %pool, i32 0, i32 6
  %done.p = getelementptr %Pool, ptr %pool, i32 0, i32 8
  %asleep.p = getelementptr %Pool, ptr %pool, i32 0, i32 10
  %waiting.p = getelementptr %Pool, ptr %pool, i32 0, i32 12
  %spin.p = getelementptr %Pool, ptr %pool, i32 0, i32 14
  %threads.p = getelementptr %Pool, ptr %pool, i32 0, i32 17
  %mutex = getelementptr %Pool, ptr %pool, i32 0, i32 19
  %wake = getelementptr %Pool, ptr %pool, i32 0, i32 20
  %finished = getelementptr %Pool, ptr %pool, i32 0, i32 21
  %scratch = call ptr @scratch(ptr %pool, i64 0)
  %spin = load i64, ptr %spin.p
  %threads = load i64, ptr %threads.p
  %single = icmp eq i64 %threads, 1
  %most = mul i64 %threads, CHUNKS_PER_THREAD
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %step, label %exit
exit:
  ret void
next:
  %i.next = add i64 %i, 1
  br label %head
step:
  %step.fn.p = getelementptr %Step, ptr %steps, i64 %i, i32 0
  %step.tasks.p = getelementptr %Step, ptr %steps, i64 %i, i32 1
  %step.bufs.p = getelementptr %Step, ptr %steps, i64 %i, i32 2
  %step.vars.p = getelementptr %Step, ptr %steps, i64 %i, i32 3
  %fn = load ptr, ptr %step.fn.p
  %tasks.fn = load ptr, ptr %step.tasks.p
  %bufs = load ptr, ptr %step.bufs.p
  %vars = load ptr, ptr %step.vars.p
  %tasks = call i64 %tasks.fn(ptr %vars)
  %some = icmp sgt i64 %tasks, 0
  br i1 %some, label %choose, label %next
choose:
  %one = icmp eq i64 %tasks, 1
  %here = or i1 %one, %single
  br i1 %here, label %alone, label %share
alone:
  call void %fn(ptr %bufs, ptr %vars, i64 0, i64 %tasks, ptr %scratch)
  br label %next
share:
  %wanted = call i64 @llvm.umin.i64(i64 %tasks, i64 %most)
  %tasks.less = sub i64 %tasks, 1
  %size.less = udiv i64 %tasks.less, %wanted
  %size = add i64 %size.less, 1
  %chunks.less = udiv i64 %tasks.less, %size
  %chunks = add i64 %chunks.less, 1
  store ptr %fn, ptr %fn.p
  store ptr %bufs, ptr %bufs.p
  store ptr %vars, ptr %vars.p
  store i64 %tasks, ptr %tasks.p
  store i64 %size, ptr %size.p
  store i64 %chunks, ptr %chunks.p
  store atomic i64 0, ptr %done.p monotonic, align 8
  store atomic i64 %chunks, ptr %pool seq_cst, align 8
  %asleep = load atomic i64, ptr %asleep.p seq_cst, align 8
  %none.asleep = icmp eq i64 %asleep, 0
  br i1 %none.asleep, label %help, label %rouse
rouse:
  call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i64 0, ptr %asleep.p seq_cst, align 8
  call i32 @pthread_cond_broadcast(ptr %wake)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %help
help:
  %took = call i1 @take(ptr %pool, i64 0)
  br i1 %took, label %help, label %wait
wait:
  %turn = phi i64 [ 0, %help ], [ %turn.next, %longer ]
  %done = load atomic i64, ptr %done.p acquire, align 8
  %all = icmp eq i64 %done, %chunks
  br i1 %all, label %next, label %longer
longer:
  PAUSE
  %turn.next = add i64 %turn, 1
  %tired = icmp uge i64 %turn.next, %spin
  br i1 %tired, label %rest, label %wait
rest:
  call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i64 1, ptr %waiting.p seq_cst, align 8
  br label %recheck
recheck:
  %done.now = load atomic i64, ptr %done.p seq_cst, align 8
  %all.now = icmp eq i64 %done.now, %chunks
  br i1 %all.now, label %up, label %sleep
sleep:
  call i32 @pthread_cond_wait(ptr %finished, ptr %mutex)
  br label %recheck
up:
  store atomic i64 0, ptr %waiting.p seq_cst, align 8
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %next
}

; Start up to `count` workers with the indices 1, 2, ...; returns how many the system allowed.
define i64 @minivt_start(ptr %pool, ptr %workers, i64 %count) {
entry:
  %mutex = getelementptr %Pool, ptr %pool, i32 0, i32 19
  %wake = getelementptr %Pool, ptr %pool, i32 0, i32 20
  %finished = getelementptr %Pool, ptr %pool, i32 0, i32 21
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  call i32 @pthread_cond_init(ptr %wake, ptr null)
  call i32 @pthread_cond_init(ptr %finished, ptr null)
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %index, %started ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %create, label %exit
create:
  %worker = getelementptr %Worker, ptr %workers, i64 %i
  %index.p = getelementptr %Worker, ptr %worker, i32 0, i32 1
  %thread.p = getelementptr %Worker, ptr %worker, i32 0, i32 2
  %index = add i64 %i, 1
  store ptr %pool, ptr %worker
  store i64 %index, ptr %index.p
  %error = call i32 @pthread_create(ptr %thread.p, ptr null, ptr @work, ptr %worker)
  %ok = icmp eq i32 %error, 0
  br i1 %ok, label %started, label %exit
started:
  br label %head
exit:
  ret i64 %i
}

; End and join `count` workers.
define void @minivt_stop(ptr %pool, ptr %workers, i64 %count) {
entry:
  %stop.p = getelementptr %Pool, ptr %pool, i32 0, i32 11
  %mutex = getelementptr %Pool, ptr %pool, i32 0, i32 19
  %wake = getelementptr %Pool, ptr %pool, i32 0, i32 20
  call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i64 1, ptr %stop.p seq_cst, align 8
  call i32 @pthread_cond_broadcast(ptr %wake)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %join ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %join, label %exit
join:
  %thread.p = getelementptr %Worker, ptr %workers, i64 %i, i32 2
  %thread = load ptr, ptr %thread.p
  call i32 @pthread_join(ptr %thread, ptr null)
  %next = add i64 %i, 1
  br label %head
exit:
  ret void
}

; What a spinning thread does `turns` times, to be timed.
define void @minivt_pause(i64 %turns) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  PAUSE
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %turns
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
"""


def runner_ir(machine: str) -> str:
    """The module's text for a processor, "x86_64" or "aarch64" as platform.machine() says ("arm64" on macOS)."""
    kind = "aarch64" if machine == "arm64" else machine
    return (_RUNNER.replace("DECLARE_PAUSE", _DECLARE_PAUSE[kind]).replace("PAUSE", _PAUSE[kind])
            .replace("CHUNKS_PER_THREAD", str(CHUNKS_PER_THREAD)))
