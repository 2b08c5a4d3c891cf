// Recurrences of matrices, token by token. A column of a head's state depends on no other, so that a few columns of
// it lie in L1 while all tokens of a run pass by.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/recurrence.cpp"
#include <cmath>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

constexpr int64_t kVectors = 4;  // of a tile: enough sums side by side to hide an addition's latency

// A tile of columns of a state, [Dk][columns] f32, those behind the state's last one zero.
HWY_INLINE int64_t tile_columns() { return kVectors * int64_t(hn::Lanes(F32Tag())); }

HWY_INLINE void load_four(F32 (&v)[kVectors], const float* p) {
  const F32Tag d;
  for (int64_t i = 0; i < kVectors; ++i) v[i] = hn::LoadU(d, p + i * int64_t(hn::Lanes(d)));
}
HWY_INLINE void store_four(const F32 (&v)[kVectors], float* p) {
  const F32Tag d;
  for (int64_t i = 0; i < kVectors; ++i) hn::StoreU(v[i], d, p + i * int64_t(hn::Lanes(d)));
}
// The first `count` of x, and zeros.
template <class T>
HWY_INLINE void widen(float* tile, const T* x, int64_t count) {
  const F32Tag d;
  std::fill(tile + count, tile + tile_columns(), 0.0f);
  for_each_vector(count, [&](int64_t i, auto part) HWY_ATTR { store(load(d, x + i, part), d, tile + i, part); });
}
template <class T>
HWY_INLINE void narrow(T* x, const float* tile, int64_t count) {
  const F32Tag d;
  for_each_vector(count, [&](int64_t i, auto part) HWY_ATTR { store(load(d, tile + i, part), d, x + i, part); });
}

// ln(1 + e^x), of 1 + e with e <= 1 by the series of 2 artanh(e / (2 + e)).
HWY_INLINE F32 softplus(F32 x) {
  const F32Tag d;
  const F32 e = exp_nonpositive(d, hn::Neg(hn::Abs(x)));
  const F32 s = hn::Div(e, hn::Add(e, hn::Set(d, 2.0f))), z = hn::Mul(s, s);
  const F32 series = polynomial(d, z, {1.0f, 1.0f / 3, 1.0f / 5, 1.0f / 7, 1.0f / 9, 1.0f / 11, 1.0f / 13});
  return hn::MulAdd(hn::Add(s, s), series, hn::Max(x, hn::Zero(d)));
}

// What a token multiplies the rows of a head's state by: each row by its own, or (step 0) all by one.
struct Decays {
  const float* values;
  int64_t step;

  float operator[](int64_t i) const { return values[i * step]; }
  float factor() const { return step == 0 ? *values : 1.0f; }
  // What, times factor(), projects a state that has not yet decayed: key, or where rows differ key times them, [Dk].
  HWY_INLINE const float* faded(float* room, const float* key, int64_t dk) const {
    if (step == 0) return key;
    const F32Tag d;
    for_each_vector(dk, [&](int64_t i, auto part) HWY_ATTR {
      store(hn::Mul(load(d, key + i, part), load(d, values + i, part)), d, room + i, part);
    });
    return room;
  }
};

// What tasks share: the rule, and sizes.
template <class Args>
struct Rule {
  const Args& args;
  bool is_delta;
  int64_t keys, heads, dk, dv, tiles;
  int64_t rates;  // of a head

  explicit Rule(const Args& a)
      : args(a),
        is_delta(a.rule == StateRule::delta),
        keys(a.q.dim(1)),
        heads(a.v.dim(1)),
        dk(a.q.dim(2)),
        dv(a.v.dim(2)),
        tiles((dv + tile_columns() - 1) / tile_columns()),
        rates(rates_of_head(a)) {}
  int64_t tile_floats() const { return dk * tile_columns(); }
  int64_t row_floats() const { return (dk + 15) / 16 * 16; }  // of a key
  float query_scale() const { return is_delta ? 1 / std::sqrt(float(dk)) : 1; }

  // A key or a query as the rule reads it: x / |x| times `scale`, or x. Returns what x was multiplied by, but for
  // `scale`.
  template <class T>
  HWY_INLINE float read(float* to, const T* x, float scale) const {
    const F32Tag d;
    float inverse = 1;
    if (is_delta) {
      const F32 squares = sum_over(dk, [&](int64_t i, auto part) HWY_ATTR {
        const F32 v = load(d, x + i, part);
        return hn::Mul(v, v);
      });
      inverse = 1 / std::sqrt(sum_of_lanes(squares) + 1e-6f);
    }
    const F32 factor = hn::Set(d, inverse * scale);
    for_each_vector(
        dk, [&](int64_t i, auto part) HWY_ATTR { store(hn::Mul(load(d, x + i, part), factor), d, to + i, part); });
    return inverse;
  }

  Decays decays(const float* values) const { return {values, rates > 1 ? 1 : 0}; }

  // Of head n at a token, whose numbers are at `at`: decays and their logarithms, [rates]. Returns how much of what
  // is new the state learns.
  template <class T>
  HWY_INLINE float open_gates(float* log_decay, float* decay, int64_t at, int64_t n) const {
    const F32Tag d;
    const float* const a = args.a.template data<float>() + at * rates;
    const T* const shift = args.shift.template data<T>() + n * rates;
    const float rate = -std::exp(float(args.rate.template data<T>()[n]));
    const float beta = is_delta ? args.beta_scale / (1 + std::exp(-args.b.template data<float>()[at])) : 0;
    if (rates == 1) {
      const float x = *a + float(*shift), step = std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
      *log_decay = rate * step, *decay = std::exp(*log_decay);
      return is_delta ? beta : step;
    }
    for_each_vector(rates, [&](int64_t i, auto part) HWY_ATTR {
      const F32 step = softplus(hn::Add(load(d, a + i, part), load(d, shift + i, part)));
      const F32 logarithm = hn::Mul(step, hn::Set(d, rate));
      store(logarithm, d, log_decay + i, part), store(exp_nonpositive(d, logarithm), d, decay + i, part);
    });
    return beta;
  }
  template <class T>
  float skip(int64_t n) const {
    return is_delta ? 0.0f : float(args.skip.template data<T>()[n]);
  }
};

// The rows of a tile, so many floats apart.
template <class Float>
struct StateRows {
  Float* first;
  int64_t stride;
  Float* operator[](int64_t i) const { return first + i * stride; }
};
using ReadRows = StateRows<const float>;
using WrittenRows = StateRows<float>;

// What add(i, sums) adds up for all rows, those of even and of odd number apart.
template <class Add>
HWY_INLINE void sum_over_rows(F32 (&sums)[kVectors], int64_t dk, Add&& add) {
  const F32Tag d;
  F32 odd[kVectors];
  for (int64_t c = 0; c < kVectors; ++c) sums[c] = odd[c] = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 <= dk; i += 2) add(i, sums), add(i + 1, odd);
  if (i < dk) add(i, sums);
  for (int64_t c = 0; c < kVectors; ++c) sums[c] = hn::Add(sums[c], odd[c]);
}

// error = v - (decayed state)^T key. room: [Dk].
HWY_INLINE void find_error(float* error, ReadRows state, const float* key, const float* v, Decays decays, float* room,
                           int64_t dk) {
  const float* const faded = decays.faded(room, key, dk);
  const F32Tag d;
  F32 known[kVectors], values[kVectors];
  sum_over_rows(known, dk, [&](int64_t i, F32(&sums)[kVectors]) HWY_ATTR {
    F32 s[kVectors];
    load_four(s, state[i]);
    for (int64_t c = 0; c < kVectors; ++c) sums[c] = hn::MulAdd(s[c], hn::Set(d, faded[i]), sums[c]);
  });
  load_four(values, v);
  for (int64_t c = 0; c < kVectors; ++c) values[c] = hn::NegMulAdd(known[c], hn::Set(d, decays.factor()), values[c]);
  store_four(values, error);
}

// state = decay state + key (beta error)^T, into `to`, which may be `state`; read: that, transposed, times `query`,
// where there is one.
template <bool kReads>
HWY_INLINE void learn(F32 (&read)[kVectors], WrittenRows to, ReadRows state, const float* key, const float* query,
                      const float* error, Decays decays, float beta, int64_t dk) {
  const F32Tag d;
  F32 learnt[kVectors];
  load_four(learnt, error);
  for (int64_t c = 0; c < kVectors; ++c) learnt[c] = hn::Mul(learnt[c], hn::Set(d, beta));
  sum_over_rows(read, dk, [&](int64_t i, F32(&sums)[kVectors]) HWY_ATTR {
    const F32 k = hn::Set(d, key[i]), decay = hn::Set(d, decays[i]);
    F32 s[kVectors];
    load_four(s, state[i]);
    for (int64_t c = 0; c < kVectors; ++c) s[c] = hn::MulAdd(s[c], decay, hn::Mul(learnt[c], k));
    store_four(s, to[i]);
    if constexpr (kReads)
      for (int64_t c = 0; c < kVectors; ++c) sums[c] = hn::MulAdd(s[c], hn::Set(d, query[i]), sums[c]);
  });
}

// Of a run and all that go on from it.
template <class T>
void run_tile(const Rule<RecurrenceArgs>& z, int first_run, int64_t n, int64_t tile, float* scratch) {
  const RecurrenceArgs& args = z.args;
  TokenRun run = args.runs[first_run];
  const int64_t columns = tile_columns(), first = tile * columns, count = std::min(columns, z.dv - first);
  const WrittenRows own{scratch, columns};
  float* const key = scratch + z.tile_floats();
  float* const query = key + z.row_floats();
  float* const faded = query + z.row_floats();
  float* const log_decay = faded + z.row_floats();
  float* const decay = log_decay + z.row_floats();
  float* const v = decay + z.row_floats();
  float* const error = v + columns;
  const auto kept = [&](int32_t number, int64_t i) {
    return args.states.data<float>() + ((number * z.heads + n) * z.dk + i) * z.dv + first;
  };
  // A token alone reads and writes states where they are kept.
  const bool is_alone = !args.runs.goes_on(first_run + 1) && run.end - run.begin == 1 && run.from >= 0 &&
                        run.to >= 0 && count == columns;
  const WrittenRows state = is_alone ? WrittenRows{kept(run.to, 0), z.dv} : own;
  const ReadRows before = is_alone ? ReadRows{kept(run.from, 0), z.dv} : ReadRows{own.first, columns};
  if (run.from < 0) std::fill_n(own.first, z.tile_floats(), 0.0f);
  for (int64_t i = 0; !is_alone && run.from >= 0 && i < z.dk; ++i) widen(own[i], kept(run.from, i), count);
  const int64_t group = z.heads / z.keys;
  const F32Tag d;
  const F32 skip = hn::Set(d, z.template skip<T>(n));
  const auto add_token = [&](int64_t t) HWY_ATTR {
    const int64_t at = (t * z.keys + n / group) * z.dk, head = t * z.heads + n;
    z.read(key, args.k.data<T>() + at, 1.0f);
    z.read(query, args.q.data<T>() + at, z.query_scale());
    const float beta = z.template open_gates<T>(log_decay, decay, head, n);
    const Decays decays = z.decays(decay);
    widen(v, args.v.data<T>() + head * z.dv + first, count);
    if (z.is_delta) find_error(error, before, key, v, decays, faded, z.dk);
    F32 read[kVectors], values[kVectors];
    load_four(values, v);
    learn<true>(read, state, before, key, query, z.is_delta ? error : v, decays, beta, z.dk);
    for (int64_t c = 0; c < kVectors; ++c) read[c] = hn::MulAdd(values[c], skip, read[c]);
    store_four(read, v);
    narrow(args.y.data<T>() + head * z.dv + first, v, count);
  };
  for (int number = first_run;; run = args.runs[++number]) {
    for (int64_t t = run.begin; t < run.end; ++t) add_token(t);
    for (int64_t i = 0; !is_alone && run.to >= 0 && i < z.dk; ++i) narrow(kept(run.to, i), own[i], count);
    if (!args.runs.goes_on(number + 1)) return;
  }
}

void recurrence(Stream& stream, const RecurrenceArgs& args) {
  const Rule z(args);
  const int64_t floats = z.tile_floats() + 5 * z.row_floats() + 2 * tile_columns();
  with_dtype("recurrence", args.q, [&](auto element) {
    stream.team().parallel_for(
        args.runs.count * z.heads * z.tiles, z.tiles, [&](int64_t begin, int64_t end, int worker) {
          auto* const scratch = reinterpret_cast<float*>(stream.scratch(worker, size_t(floats) * sizeof(float)));
          for (int64_t task = begin; task < end; ++task) {
            const int64_t tile = task % z.tiles, head = task / z.tiles;
            const auto run = int(head / z.heads);
            if (!args.runs.goes_on(run)) run_tile<decltype(element)>(z, run, head % z.heads, tile, scratch);
          }
        });
  });
}

// ---- backward ----

// What a task works on: a run, and the heads that share a key. Of tiles, one after the other, the states before each
// block of tokens are kept, then from the last block on those before each of its tokens.
class RecurrenceBackward {
 public:
  RecurrenceBackward(const RecurrenceBackwardArgs& args, int64_t longest)
      : args_(args),
        z_(args),
        block_(std::max<int64_t>(16, int64_t(std::ceil(std::sqrt(double(longest)))))),
        floats_{.states = (longest + block_ - 1) / block_ + block_ + 1,  // and the gradient's
                .units = 4 * longest * z_.row_floats(),
                .errors = block_ * tile_columns(),
                .scalars = (5 + 3 * z_.rates) * longest} {}

  size_t bytes() const {
    return sizeof(float) * size_t(floats_.states * z_.tile_floats() + floats_.units + floats_.errors +
                                  floats_.scalars + 2 * tile_columns() + z_.row_floats());
  }

  // sums: [heads, num_sums()], of this run: the gradients of rate and skip, and of what a head has of shift.
  template <class T>
  void run(const TokenRun& run, int64_t key, float* sums, std::byte* scratch) {
    lay_out(scratch, run.end - run.begin);
    prepare<T>(run, key);
    const int64_t group = z_.heads / z_.keys;
    for (int64_t n = key * group; n < (key + 1) * group; ++n) {
      load_gates<T>(run, n);
      skip_ = z_.template skip<T>(n);
      for (float* const sum : {dbeta_, dskip_}) std::fill_n(sum, tokens_, 0.0f);
      std::fill_n(dlog_decay_, tokens_ * z_.rates, 0.0f);
      for (int64_t tile = 0; tile < z_.tiles; ++tile) run_tile<T>(run, n, tile * tile_columns());
      store_gates<T>(run, n, sums + num_sums() * n);
    }
    for (int64_t t = 0; t < tokens_; ++t) {
      const int64_t at = ((run.begin + t) * z_.keys + key) * z_.dk;
      store_unit(args_.dk.data<T>() + at, dkeys_ + t * z_.row_floats(), keys_ + t * z_.row_floats(), inverse_k_[t],
                 1);
      store_unit(args_.dq.data<T>() + at, dqueries_ + t * z_.row_floats(), queries_ + t * z_.row_floats(),
                 inverse_q_[t], z_.query_scale());
    }
  }

  int64_t num_sums() const { return 2 + z_.rates; }  // to a head of a run

 private:
  void lay_out(std::byte* scratch, int64_t tokens) {
    tokens_ = tokens;
    auto* at = reinterpret_cast<float*>(scratch);
    const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
    dstate_ = take(z_.tile_floats());
    states_ = take(block_ * z_.tile_floats());
    starts_ = take((floats_.states - block_ - 1) * z_.tile_floats());
    errors_ = take(floats_.errors);
    dy_ = take(tile_columns()), v_ = take(tile_columns()), faded_ = take(z_.row_floats());
    const int64_t units = tokens * z_.row_floats();
    keys_ = take(units), queries_ = take(units), dkeys_ = take(units), dqueries_ = take(units);
    for (float** const rates : {&log_decay_, &decay_, &dlog_decay_}) *rates = take(tokens * z_.rates);
    for (float** const scalars : {&beta_, &dbeta_, &dskip_, &inverse_k_, &inverse_q_}) *scalars = take(tokens);
  }

  template <class T>
  void prepare(const TokenRun& run, int64_t key) {
    for (int64_t t = 0; t < tokens_; ++t) {
      const int64_t at = ((run.begin + t) * z_.keys + key) * z_.dk;
      inverse_k_[t] = z_.read(keys_ + t * z_.row_floats(), args_.k.data<T>() + at, 1.0f);
      inverse_q_[t] = z_.read(queries_ + t * z_.row_floats(), args_.q.data<T>() + at, z_.query_scale());
    }
    std::fill_n(dkeys_, tokens_ * z_.row_floats(), 0.0f), std::fill_n(dqueries_, tokens_ * z_.row_floats(), 0.0f);
  }

  template <class T>
  void load_gates(const TokenRun& run, int64_t n) {
    for (int64_t t = 0; t < tokens_; ++t)
      beta_[t] = z_.template open_gates<T>(log_decay_ + t * z_.rates, decay_ + t * z_.rates,
                                           (run.begin + t) * z_.heads + n, n);
  }

  template <class T>
  void store_gates(const TokenRun& run, int64_t n, float* sums) {
    const F32Tag d;
    const F32 rate = hn::Set(d, std::exp(float(args_.rate.data<T>()[n])));
    const T* const shift = args_.shift.data<T>() + n * z_.rates;
    float* const dshift = sums + 2;
    std::fill_n(sums, num_sums(), 0.0f);
    for (int64_t t = 0; t < tokens_; ++t) {
      const int64_t at = (run.begin + t) * z_.heads + n, row = t * z_.rates;
      const float* const a = args_.a.data<float>() + at * z_.rates;
      float* const da = args_.da.data<float>() + at * z_.rates;
      const F32 learnt = hn::Set(d, z_.is_delta ? 0.0f : dbeta_[t]);
      sums[0] += sum_of_lanes(sum_over(z_.rates, [&](int64_t i, auto part) HWY_ATTR {
        const F32 slope = sigmoid(d, hn::Add(load(d, a + i, part), load(d, shift + i, part)));
        const F32 forgot = load(d, dlog_decay_ + row + i, part);
        const F32 dx = hn::Mul(hn::NegMulAdd(forgot, rate, learnt), slope);
        store(dx, d, da + i, part);
        store(hn::Add(load(d, dshift + i, part), dx), d, dshift + i, part);
        return hn::Mul(forgot, load(d, log_decay_ + row + i, part));
      }));
      if (z_.is_delta) args_.db.data<float>()[at] = dbeta_[t] * beta_[t] * (1 - beta_[t] / args_.beta_scale);
      sums[1] += dskip_[t];
    }
  }

  Decays decays(int64_t t) const { return z_.decays(decay_ + t * z_.rates); }
  float* state(int64_t i) const { return states_ + i * z_.tile_floats(); }
  float* start(int64_t block) const { return starts_ + block * z_.tile_floats(); }
  float* error(int64_t i) const { return errors_ + i * tile_columns(); }

  // From the state before token t to the one after it.
  template <class T>
  void step(float* to, const float* from, float* e, const TokenRun& run, int64_t t, int64_t n, int64_t first,
            int64_t count) {
    const float* const key = keys_ + t * z_.row_floats();
    float* const v = z_.is_delta ? v_ : e;
    widen(v, args_.v.data<T>() + ((run.begin + t) * z_.heads + n) * z_.dv + first, count);
    const ReadRows state{from, tile_columns()};
    if (z_.is_delta) find_error(e, state, key, v, decays(t), faded_, z_.dk);
    F32 unread[kVectors];
    if (to) learn<false>(unread, {to, tile_columns()}, state, key, nullptr, e, decays(t), beta_[t], z_.dk);
  }

  template <class T>
  void run_tile(const TokenRun& run, int64_t n, int64_t first) {
    const int64_t count = std::min(tile_columns(), z_.dv - first), blocks = (tokens_ + block_ - 1) / block_;
    if (blocks == 0) return;
    std::fill_n(start(0), z_.tile_floats(), 0.0f);
    for (int64_t block = 0; block + 1 < blocks; ++block) {
      std::copy_n(start(block), z_.tile_floats(), start(block + 1));
      for (int64_t t = block * block_; t < (block + 1) * block_; ++t)
        step<T>(start(block + 1), start(block + 1), error(0), run, t, n, first, count);
    }
    std::fill_n(dstate_, z_.tile_floats(), 0.0f);
    for (int64_t block = blocks; block-- > 0;) {
      const int64_t begin = block * block_, end = std::min(begin + block_, tokens_);
      std::copy_n(start(block), z_.tile_floats(), state(0));
      for (int64_t t = begin; t < end; ++t)
        step<T>(t + 1 < end ? state(t + 1 - begin) : nullptr, state(t - begin), error(t - begin), run, t, n, first,
                count);
      for (int64_t t = end; t-- > begin;) {
        const int64_t at = ((run.begin + t) * z_.heads + n) * z_.dv + first;
        widen(dy_, args_.dy.data<T>() + at, count);
        back(state(t - begin), error(t - begin), t);
        narrow(args_.dv.data<T>() + at, v_, count);  // what back() leaves there
      }
    }
  }

  // The gradient of the state after token t becomes that of the one before it, `old`.
  void back(const float* old, const float* error, int64_t t) {
    const F32Tag d;
    const int64_t columns = tile_columns();
    const float *const key = keys_ + t * z_.row_floats(), *const query = queries_ + t * z_.row_floats();
    float *const dkey = dkeys_ + t * z_.row_floats(), *const dquery = dqueries_ + t * z_.row_floats();
    const Decays decays = this->decays(t);
    float* const dlog_decay = dlog_decay_ + t * z_.rates;
    const F32 beta = hn::Set(d, beta_[t]);
    F32 dy[kVectors], learnt[kVectors], e[kVectors], dlearnt[kVectors], s[kVectors], ds[kVectors];
    load_four(dy, dy_), load_four(e, error);
    F32 along = hn::Zero(d), seen = hn::Zero(d);
    for (int64_t c = 0; c < kVectors; ++c) {
      learnt[c] = hn::Mul(e[c], beta), dlearnt[c] = hn::Zero(d);
      along = hn::MulAdd(learnt[c], dy[c], along);
      seen = hn::MulAdd(e[c], dy[c], seen);
    }
    const float learnt_dy = sum_of_lanes(along);
    dskip_[t] += sum_of_lanes(seen);  // of selective states, whose error is v
    for (int64_t i = 0; i < z_.dk; ++i) {
      load_four(s, old + i * columns), load_four(ds, dstate_ + i * columns);
      const F32 q = hn::Set(d, query[i]), k = hn::Set(d, key[i]);
      F32 read = hn::Zero(d);
      for (int64_t c = 0; c < kVectors; ++c) {
        ds[c] = hn::MulAdd(q, dy[c], ds[c]);
        read = hn::MulAdd(s[c], dy[c], read);
        dlearnt[c] = hn::MulAdd(ds[c], k, dlearnt[c]);
      }
      store_four(ds, dstate_ + i * columns);
      dquery[i] += decays[i] * sum_of_lanes(read) + key[i] * learnt_dy;
    }
    F32 derror[kVectors], dv[kVectors], dbeta = hn::Zero(d), forgot = hn::Zero(d);
    const F32 skip = hn::Set(d, skip_), knows = hn::Set(d, z_.is_delta ? 1.0f : 0.0f);
    for (int64_t c = 0; c < kVectors; ++c) {
      dbeta = hn::MulAdd(dlearnt[c], e[c], dbeta);
      derror[c] = hn::Mul(dlearnt[c], beta);
      dv[c] = hn::MulAdd(skip, dy[c], derror[c]);
      derror[c] = hn::Mul(derror[c], knows);  // of what the state knew
    }
    store_four(dv, v_);
    for (int64_t i = 0; i < z_.dk; ++i) {
      load_four(s, old + i * columns), load_four(ds, dstate_ + i * columns);
      const F32 k = hn::Set(d, key[i]), decay = hn::Set(d, decays[i]);
      F32 change = hn::Zero(d);
      for (int64_t c = 0; c < kVectors; ++c) {
        s[c] = hn::Mul(s[c], decay);
        change = hn::NegMulAdd(s[c], derror[c], hn::MulAdd(ds[c], learnt[c], change));
        ds[c] = hn::NegMulAdd(k, derror[c], ds[c]);
        forgot = hn::MulAdd(ds[c], s[c], forgot);
        ds[c] = hn::Mul(ds[c], decay);
      }
      store_four(ds, dstate_ + i * columns);
      dkey[i] += sum_of_lanes(change);
      if (z_.rates > 1) dlog_decay[i] += sum_of_lanes(std::exchange(forgot, hn::Zero(d)));
    }
    dbeta_[t] += sum_of_lanes(dbeta), *dlog_decay += sum_of_lanes(forgot);
  }

  // The gradient of x, of which `unit` is x * inverse * scale, or x.
  template <class T>
  void store_unit(T* dx, const float* dunit, const float* unit, float inverse, float scale) {
    const F32Tag d;
    const float along = sum_of_lanes(sum_over(z_.dk, [&](int64_t i, auto part) HWY_ATTR {
      return hn::Mul(load(d, unit + i, part), load(d, dunit + i, part));
    }));
    const F32 back = hn::Set(d, z_.is_delta ? along / (scale * scale) : 0.0f), factor = hn::Set(d, inverse * scale);
    for_each_vector(z_.dk, [&](int64_t i, auto part) HWY_ATTR {
      store(hn::Mul(hn::NegMulAdd(back, load(d, unit + i, part), load(d, dunit + i, part)), factor), d, dx + i, part);
    });
  }

  const RecurrenceBackwardArgs& args_;
  Rule<RecurrenceBackwardArgs> z_;
  int64_t block_;
  struct {
    int64_t states, units, errors, scalars;
  } floats_;
  int64_t tokens_ = 0;
  float *dstate_ = nullptr, *states_ = nullptr, *starts_ = nullptr, *errors_ = nullptr;
  float *dy_ = nullptr, *v_ = nullptr;  // of a tile
  float* faded_ = nullptr;              // of a key
  float *keys_ = nullptr, *queries_ = nullptr, *dkeys_ = nullptr, *dqueries_ = nullptr;
  float *log_decay_ = nullptr, *decay_ = nullptr, *beta_ = nullptr, *dbeta_ = nullptr, *dlog_decay_ = nullptr;
  float *dskip_ = nullptr, skip_ = 0;
  float *inverse_k_ = nullptr, *inverse_q_ = nullptr;
};

void recurrence_backward(Stream& stream, const RecurrenceBackwardArgs& args) {
  int64_t longest = 0;
  for (const TokenRun& run : args.runs) longest = std::max<int64_t>(longest, run.end - run.begin);
  const RecurrenceBackward sized(args, longest);
  const int64_t of_head = sized.num_sums(), rates = rates_of_head(args);
  const int64_t heads = args.v.dim(1), keys = args.q.dim(1), runs = args.runs.count;
  // Of each run, so that they are added in its order: at the front of worker 0's scratch.
  const size_t front = (size_t(runs * heads * of_head) * sizeof(float) + 63) / 64 * 64;
  auto* const sums = reinterpret_cast<float*>(stream.scratch(0, front + sized.bytes()));
  with_dtype("recurrence_backward", args.q, [&](auto element) {
    using T = decltype(element);
    stream.team().parallel_for(runs * keys, 1, [&](int64_t begin, int64_t end, int worker) {
      std::byte* const own =
          worker == 0 ? reinterpret_cast<std::byte*>(sums) + front : stream.scratch(worker, sized.bytes());
      RecurrenceBackward task = sized;
      for (int64_t i = begin; i < end; ++i)
        task.run<T>(args.runs[int(i / keys)], i % keys, sums + i / keys * heads * of_head, own);
    });
  });
  for (int64_t i = 0; i < runs * heads; ++i) {
    const float* const of_one = sums + i * of_head;
    const int64_t n = i % heads;
    if (args.drate) args.drate.data<float>()[n] += of_one[0];
    if (args.dskip) args.dskip.data<float>()[n] += of_one[1];
    for (int64_t j = 0; args.dshift && j < rates; ++j) args.dshift.data<float>()[n * rates + j] += of_one[2 + j];
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(recurrence);
HWY_EXPORT(recurrence_backward);

void recurrence(Stream& stream, const RecurrenceArgs& args) {
  shapes::check_recurrence(args);
  HWY_DYNAMIC_DISPATCH(recurrence)(stream, args);
}

void recurrence_backward(Stream& stream, const RecurrenceBackwardArgs& args) {
  shapes::check_recurrence_backward(args);
  HWY_DYNAMIC_DISPATCH(recurrence_backward)(stream, args);
}

}  // namespace weft::cpu
#endif
