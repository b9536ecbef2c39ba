// The threads of one step: they share out numbered pieces of work and wait for one another after each kind of work.
//
// Each thread has a stretch of its own and then takes from the others', so that one that was held up holds up nobody.
// Waiting is a short spin and then gives the core away: a long spin makes a step ten times slower as soon as another
// process wants one of the cores.
#pragma once

#include <sched.h>

#include <atomic>
#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

constexpr int MOST_THREADS = 256;
constexpr int SPINS = 200;

class Team {
 public:
  // Runs work(me) in up to `threads` threads at once, of the pool that torch computes with.
  template <class Work>
  void run(int threads, Work work) {
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads < MOST_THREADS ? threads : MOST_THREADS)
    {
#pragma omp single
      threads_ = omp_get_num_threads();
      work(omp_get_thread_num());
    }
#else
    (void)threads;
    work(0);
#endif
  }

  // Calls work(n) for each n < count, in no order, each once; returns when all are done. Every thread calls it, with
  // its own number and the same count.
  template <class Work>
  void each(int me, int count, Work work) {
    for (int turn = 0; turn < threads_; turn++) {
      const int whose = (me + turn) % threads_;
      const int first = (long)count * whose / threads_, end = (long)count * (whose + 1) / threads_;
      for (int n; (n = first + taken_[whose].value.fetch_add(1, std::memory_order_relaxed)) < end;) work(n);
    }
    wait();
  }

 private:
  struct alignas(64) Counter {
    std::atomic<int> value{0};
  };

  void wait() {
    const int now = round_.load(std::memory_order_acquire);
    if (arrived_.value.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
      for (int whose = 0; whose < threads_; whose++) taken_[whose].value.store(0, std::memory_order_relaxed);
      arrived_.value.store(0, std::memory_order_relaxed);
      round_.store(now + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == now; spins++) {
      if (spins > SPINS) {
        sched_yield();
      } else {
#if defined(__x86_64__)
        _mm_pause();
#endif
      }
    }
  }

  int threads_ = 1;
  Counter taken_[MOST_THREADS];
  Counter arrived_;
  alignas(64) std::atomic<int> round_{0};
};
