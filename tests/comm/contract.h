// The contract of a communicator as a list of checks, run over every transport.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"

namespace weft {

// Runs on every rank of a group; throws Error when the contract is broken.
struct ContractCheck {
  std::string name;
  std::function<void(Communicator&)> run;
};

inline void expect(bool condition, const std::string& what) {
  if (!condition) throw Error("contract broken: {}", what);
}

template <class T>
T number(int64_t i) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
    return T(float(i));
  else
    return T(i);
}

template <class T>
int64_t integer(T x) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
    return int64_t(float(x));
  else
    return int64_t(x);
}

// Small integers, so that sums over any few ranks are exact in bf16.
inline int64_t value_at(int rank, int64_t i) { return (i * 7 + rank * 3) % 13 - 4; }

template <class T>
void fill(const Tensor& t, int rank, int64_t first = 0) {
  for (int64_t i = 0; i < t.numel(); ++i) t.data<T>()[i] = number<T>(value_at(rank, first + i));
}

template <class T, class Expected>
void expect_values(const Tensor& t, Expected expected, const std::string& what) {
  for (int64_t i = 0; i < t.numel(); ++i)
    if (integer(t.data<T>()[i]) != expected(i))
      throw Error("contract broken: {} of {} {}: element {} is {}, not {}", what, t.numel(), name_of(t.dtype()), i,
                  integer(t.data<T>()[i]), expected(i));
}

inline int64_t reduced_at(Reduction reduction, int size, int64_t i) {
  int64_t y = value_at(0, i);
  for (int r = 1; r < size; ++r) {
    const int64_t x = value_at(r, i);
    y = reduction == Reduction::sum ? y + x : reduction == Reduction::max ? std::max(y, x) : std::min(y, x);
  }
  return y;
}

constexpr int64_t kSizes[] = {0, 1, 17, 4099};
constexpr int64_t kMebi = 1 << 20;

// Elements of one rank's tensor; the largest only in f32, to keep the suite fast.
template <class T>
std::vector<int64_t> sizes() {
  std::vector<int64_t> all(std::begin(kSizes), std::end(kSizes));
  if (std::is_same_v<T, float>) all.push_back(70001);
  return all;
}

// Calls body(zero of type T) for every type that can be reduced.
template <class Body>
void for_each_type(Body body) {
  body(float{}), body(double{}), body(BFloat16{}), body(Float16{}), body(int64_t{}), body(int32_t{});
}

// ---- the checks ----

inline void check_all_reduce(Communicator& c) {
  Allocator allocator;
  for_each_type([&]<class T>(T) {
    for (const bool is_shared : {false, true})
      for (const int64_t n : sizes<T>())
        for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
          const Tensor x =
              is_shared ? c.allocate_shared(allocator, dtype_of<T>(), {n}) : allocator.empty(dtype_of<T>(), {n});
          fill<T>(x, c.rank());
          c.all_reduce(x, reduction);
          expect_values<T>(
              x, [&](int64_t i) { return reduced_at(reduction, c.size(), i); }, "all_reduce");
        }
  });
  const int64_t large = c.size() > 2 ? kMebi / 4 : kMebi;
  for (const bool is_shared : {false, true}) {  // large; and a part of a larger tensor
    const Tensor all = is_shared ? c.allocate_shared(allocator, DType::f32, {large + 33})
                                 : allocator.empty(DType::f32, {large + 33});
    const Tensor x = all.slice_flat(16, {large + 1});
    fill<float>(x, c.rank());
    c.all_reduce(x);
    expect_values<float>(
        x, [&](int64_t i) { return reduced_at(Reduction::sum, c.size(), i); }, "all_reduce");
  }
}

// Sums in rank order and in f32: what one loop over the ranks gives, bit for bit, on every rank.
inline void check_rank_order(Communicator& c) {
  Allocator allocator;
  const auto inexact = [](int rank, int64_t i) { return 1.0f / float(1 + rank * 31 + i % 977); };
  for (const int64_t n : {int64_t(5), int64_t(4099), int64_t(40001)}) {
    const Tensor x = allocator.empty(DType::f32, {n}), half = allocator.empty(DType::bf16, {n});
    for (int64_t i = 0; i < n; ++i) {
      x.data<float>()[i] = inexact(c.rank(), i);
      half.data<BFloat16>()[i] = BFloat16(inexact(c.rank(), i));
    }
    c.all_reduce(x);
    c.all_reduce(half);
    for (int64_t i = 0; i < n; ++i) {
      float sum = inexact(0, i), half_sum = float(BFloat16(inexact(0, i)));
      for (int r = 1; r < c.size(); ++r) sum += inexact(r, i), half_sum += float(BFloat16(inexact(r, i)));
      expect(x.data<float>()[i] == sum, fmt::format("all_reduce of f32 is not in rank order at {} of {}", i, n));
      expect(half.data<BFloat16>()[i].bits == BFloat16(half_sum).bits,
             fmt::format("all_reduce of bf16 is not summed in f32 at {} of {}", i, n));
    }
  }
}

inline void check_all_gather(Communicator& c) {
  Allocator allocator;
  for_each_type([&]<class T>(T) {
    for (const bool is_shared : {false, true})
      for (const int64_t n : sizes<T>()) {
        const auto make = [&](Shape shape) {
          return is_shared ? c.allocate_shared(allocator, dtype_of<T>(), shape)
                           : allocator.empty(dtype_of<T>(), shape);
        };
        const Tensor in = make({n}), out = make({c.size(), n}), in_place = make({c.size() * n});
        fill<T>(in, c.rank());
        const Tensor own = in_place.slice_flat(c.rank() * n, {n});
        fill<T>(own, c.rank());
        c.all_gather(out, in);
        c.all_gather(in_place, own);
        const auto expected = [&](int64_t i) { return value_at(int(i / n), i % n); };
        expect_values<T>(out, expected, "all_gather");
        expect_values<T>(in_place, expected, "all_gather in place");
      }
  });
}

inline void check_reduce_scatter(Communicator& c) {
  Allocator allocator;
  for_each_type([&]<class T>(T) {
    for (const bool is_shared : {false, true})
      for (const int64_t n : sizes<T>()) {
        const auto make = [&](Shape shape) {
          return is_shared ? c.allocate_shared(allocator, dtype_of<T>(), shape)
                           : allocator.empty(dtype_of<T>(), shape);
        };
        const Tensor in = make({c.size() * n}), out = make({n});
        fill<T>(in, c.rank());
        c.reduce_scatter(out, in);
        const auto expected = [&](int64_t i) { return reduced_at(Reduction::sum, c.size(), c.rank() * n + i); };
        expect_values<T>(out, expected, "reduce_scatter");
        const Tensor own = in.slice_flat(c.rank() * n, {n});
        c.reduce_scatter(own, in);
        expect_values<T>(own, expected, "reduce_scatter in place");
      }
  });
}

inline void check_broadcast(Communicator& c) {
  Allocator allocator;
  for_each_type([&]<class T>(T) {
    for (const int64_t n : sizes<T>())
      for (int root = 0; root < c.size(); ++root) {
        const Tensor x = allocator.empty(dtype_of<T>(), {n});
        fill<T>(x, c.rank());
        c.broadcast(x, root);
        expect_values<T>(
            x, [&](int64_t i) { return value_at(root, i); }, "broadcast");
      }
  });
}

// Rank r sends (r + 2 * to) % 4 * scale rows to `to`: some counts are zero.
inline void check_all_to_all(Communicator& c) {
  Allocator allocator;
  const auto rows = [](int from, int to, int64_t scale) { return (from + 2 * to) % 4 * scale; };
  for (const int64_t scale : {0, 1, 37, 5001}) {
    std::vector<int64_t> out_counts, in_counts;
    int64_t out_rows = 0, in_rows = 0;
    for (int r = 0; r < c.size(); ++r) {
      out_rows += out_counts.emplace_back(rows(r, c.rank(), scale));
      in_rows += in_counts.emplace_back(rows(c.rank(), r, scale));
    }
    const Tensor in = allocator.empty(DType::i32, {in_rows, 3}), out = allocator.empty(DType::i32, {out_rows, 3});
    fill<int32_t>(in, c.rank());
    c.all_to_all(out, out_counts, in, in_counts);
    int64_t row = 0;
    for (int from = 0; from < c.size(); ++from) {
      int64_t before = 0;
      for (int to = 0; to < c.rank(); ++to) before += rows(from, to, scale);
      const Tensor part = out.slice_rows(row, out_counts[size_t(from)]);
      expect_values<int32_t>(
          part, [&](int64_t i) { return value_at(from, before * 3 + i); }, "all_to_all");
      row += part.dim(0);
    }
  }
}

// Messages of two tags, received out of order, to every rank including oneself; large ones before anyone receives.
inline void check_send_recv(Communicator& c) {
  Allocator allocator;
  for (const int64_t n : {int64_t(0), int64_t(5), int64_t(30000)}) {
    const Tensor x = allocator.empty(DType::f32, {n});
    for (int to = 0; to < c.size(); ++to)
      for (const int tag : {1, 2, 2}) {
        fill<float>(x, c.rank() + tag, to);
        c.send(x, to, tag);
      }
    for (int from = 0; from < c.size(); ++from)
      for (const int tag : {2, 1, 2}) {
        c.recv(x, from, tag);
        expect_values<float>(
            x, [&](int64_t i) { return value_at(from + tag, c.rank() + i); }, "recv");
      }
  }
  c.barrier();
}

inline void check_split(Communicator& c) {
  Allocator allocator;
  const auto halves = c.split(c.rank() % 2, -c.rank(), "halves");  // ordered backwards
  const int expected_size = (c.size() + 1 - c.rank() % 2) / 2;
  expect(halves->label() == "halves" && halves->size() == expected_size, "size of a group split by parity");
  expect(halves->rank() == halves->size() - 1 - c.rank() / 2, "rank in a group ordered by key");
  const auto alone = c.split(-c.rank(), 0, "alone");
  expect(alone->size() == 1 && alone->rank() == 0, "a group of one");
  const auto nested = halves->split(0, 0, "nested");
  for (const int64_t n : {int64_t(3), int64_t(50001)}) {
    const Tensor x = halves->allocate_shared(allocator, DType::f32, {n}), all = allocator.empty(DType::f32, {n});
    int64_t sum = 0, total = 0;
    for (int r = 0; r < c.size(); ++r) total += r, sum += r % 2 == c.rank() % 2 ? r : 0;
    for (int64_t i = 0; i < n; ++i) x.data<float>()[i] = all.data<float>()[i] = float(c.rank());
    alone->all_reduce(x);
    Pending pending = halves->start_all_reduce(x);
    c.all_reduce(all);
    pending.wait();
    expect_values<float>(
        x, [&](int64_t) { return sum; }, "all_reduce in a split group");
    expect_values<float>(
        all, [&](int64_t) { return total; }, "all_reduce beside a split group");
    nested->all_reduce(x, Reduction::max);
    expect_values<float>(
        x, [&](int64_t) { return sum; }, "all_reduce in a nested group");
    c.all_reduce(x, Reduction::max);  // memory that some ranks of this group may not see
  }
}

// Several started collectives and a blocking one behind them come out in the order of their calls.
inline void check_started(Communicator& c) {
  Allocator allocator;
  const int size = c.size();
  const Tensor x = c.allocate_shared(allocator, DType::i64, {4099}),
               parts = allocator.empty(DType::i64, {size * 500});
  const Tensor gathered = allocator.empty(DType::i64, {size * 4099}), part = allocator.empty(DType::i64, {500});
  for (int round = 0; round < 20; ++round) {
    fill<int64_t>(x, c.rank()), fill<int64_t>(parts, c.rank());
    std::vector<Pending> pending;
    pending.push_back(c.start_all_reduce(x));
    pending.push_back(c.start_all_gather(gathered, x));
    pending.push_back(c.start_all_reduce(x, Reduction::max));
    pending.push_back(c.start_reduce_scatter(part, parts));
    c.send(part.slice_flat(0, {0}), (c.rank() + 1) % size, 5);  // overtakes
    c.recv(part.slice_flat(0, {0}), (c.rank() + size - 1) % size, 5);
    c.all_reduce(x);
    const auto sum = [&](int64_t i) { return reduced_at(Reduction::sum, size, i); };
    expect_values<int64_t>(
        x, [&](int64_t i) { return size * sum(i); }, "all_reduce behind started ones");
    if (round % 2) std::swap(pending[0], pending[2]);  // waiting in any order
    for (Pending& p : pending) p.wait();
    expect_values<int64_t>(
        gathered, [&](int64_t i) { return sum(i % 4099); }, "started all_gather");
    expect_values<int64_t>(
        part, [&](int64_t i) { return sum(c.rank() * 500 + i); }, "started reduce_scatter");
  }
  for (int i = 0; i < 600; ++i) c.start_all_reduce(x, Reduction::max);  // more than the queue holds; dropped at once
  c.barrier();
}

inline void check_many_small(Communicator& c) {
  Allocator allocator;
  const Tensor x = allocator.empty(DType::i64, {1});
  const int rounds = c.size() > 2 ? 500 : c.name() == "mpi" ? 2000 : 10000;
  for (int i = 0; i < rounds; ++i) {
    *x.data<int64_t>() = i + c.rank();
    c.all_reduce(x, Reduction::max);
    expect(*x.data<int64_t>() == i + c.size() - 1, "many small all_reduces");
  }
}

inline void check_bookkeeping(Communicator& c) {
  Allocator allocator;
  const auto group = c.split(0, c.rank(), "counted");
  std::vector<CommEvent> events;
  events.reserve(8);
  const Tensor x = allocator.zeros(DType::f32, {1000});
  group->set_observer([&](const CommEvent& e) {
    if (!e.is_wait) events.push_back(e);
  });
  group->all_reduce(x);
  group->start_all_reduce(x).wait();
  group->barrier();
  expect(events.size() == 3, "an event for each call");
  expect(events[0].op == CommOp::all_reduce && events[0].bytes == 4000 && events[0].group == "counted" &&
             events[0].dtype == DType::f32 && !events[0].is_started && events[1].is_started,
         "what an event says");
  expect(events[1].sequence == events[0].sequence + 1 && events[2].sequence == events[1].sequence + 1 &&
             events[0].begin <= events[0].end,
         "the order of events");
  const Communicator::Stats stats = group->stats();
  expect(stats.bytes_sent == 2 * (2 * 4000 * (c.size() - 1) / c.size()), "bytes sent");
  expect(stats.seconds > 0 && stats.exposed_seconds > 0 && stats.calls == 3, "seconds in collectives");
}

// What does not fit is told before anything moves, and leaves the group whole.
inline void check_refusals(Communicator& c) {
  Allocator allocator;
  const auto expect_error = [&](const char* what, const std::function<void()>& call) {
    try {
      call();
    } catch (const Error&) {
      return;
    }
    throw Error("contract broken: {} was not refused", what);
  };
  const Tensor x = allocator.zeros(DType::f32, {6}), y = allocator.zeros(DType::f64, {6 * c.size()});
  const Tensor bytes = allocator.zeros(DType::u8, {6});
  const std::vector<int64_t> counts(size_t(c.size()), 5);
  expect_error("all_gather of other dtypes", [&] { c.all_gather(y, x); });
  expect_error("reduce_scatter of other sizes", [&] { c.reduce_scatter(x, allocator.zeros(DType::f32, {5})); });
  expect_error("all_reduce of bytes", [&] { c.all_reduce(bytes); });
  expect_error("broadcast from nobody", [&] { c.broadcast(x, c.size()); });
  expect_error("send to nobody", [&] { c.send(x, -1, 0); });
  expect_error("all_to_all with wrong counts", [&] { c.all_to_all(x, counts, x, counts); });
  c.barrier();
}

inline std::vector<ContractCheck> contract_checks() {
  return {{"all_reduce", check_all_reduce},   {"rank_order", check_rank_order},
          {"all_gather", check_all_gather},   {"reduce_scatter", check_reduce_scatter},
          {"broadcast", check_broadcast},     {"all_to_all", check_all_to_all},
          {"send_recv", check_send_recv},     {"split", check_split},
          {"started", check_started},         {"many_small", check_many_small},
          {"bookkeeping", check_bookkeeping}, {"refusals", check_refusals}};
}

}  // namespace weft
