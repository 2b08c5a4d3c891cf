// Matrix products: b in panels, a packed block by block into L2, tiles of y finished by their epilogue in L1.
#include <algorithm>
#include <array>
#include <optional>

#include "weft/base/ceil_div.h"
#include "weft/kernels/cpu/amx.h"
#include "weft/kernels/cpu/column_tasks.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/matmul_blocks.h"
#include "weft/kernels/cpu/matmul_kernels.h"
#include "weft/kernels/cpu/matmul_plan.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cpu {
namespace {

constexpr int64_t kMaxPackedChunk = 16 << 20;  // bytes of b packed at once when the caller has not packed it
constexpr int64_t kPackStep = 512;             // steps of one packing task

int64_t num_steps(DType type, int64_t k) { return type == DType::bf16 ? ceil_div(k, 2) : k; }
int64_t panel_words(DType type, int64_t k) { return num_steps(type, k) * kPanelCols; }

bool can_multiply(DType type) { return type == DType::f32 || type == DType::bf16 || type == DType::f16; }

void check_float(std::string_view name, const Tensor& t) {
  if (!can_multiply(t.dtype()))
    throw Error("matmul: {} is {}, but products on CPUs are f32, bf16 or f16", name, name_of(t.dtype()));
}

// One product, with its arguments checked and resolved.
struct Product {
  const MatmulArgs& args;
  const MatmulKernels& kernels;
  DType type;
  DotKind kind;
  int64_t m, n, k;
  int tile_rows;
  MatmulPlan plan{};
  const TileKernel* tiles;
  EpilogueKernel epilogue;
  EpilogueCall call{};
  bool stores_directly;                      // whole tiles go to y as they are
  std::array<EpilogueOperand, 6> results{};  // every [M, N] tensor
};

EpilogueOperand operand(std::string_view name, const Tensor& t) {
  if (!t) return {};
  check_float(name, t);
  return {static_cast<std::byte*>(t.raw()), t.dtype()};
}

}  // namespace

EpilogueCall epilogue_call(const MatmulArgs& args) {
  check_float("a", args.a);
  const Epilogue& e = args.epilogue;
  return {.y = operand("y", args.y),
          .bias = operand("bias", e.bias),
          .act = operand("act", e.act),
          .gate = operand("gate", e.gate),
          .up = operand("up", e.up),
          .pre = operand("pre", e.pre),
          .dgate = operand("dgate", e.dgate),
          .n = args.y.dim(1),
          .accumulate = args.accumulate};
}

namespace {

DotKind kind_of(DType type, const MatmulKernels& kernels) {
  if (type == DType::bf16) return kernels.bf16_kind;
  return type == DType::f16 ? DotKind::f16_as_f32 : DotKind::f32;
}

Product resolve(const MatmulArgs& args, const MatmulKernels& kernels) {
  shapes::check_matmul(args);
  const Epilogue& e = args.epilogue;
  const DotKind kind = kind_of(args.a.dtype(), kernels);
  if (args.packed_b) {
    const size_t bytes =
        packed_matmul_b_bytes(args.a.dtype(), args.a.dim(args.transpose_a ? 0 : 1), args.y.dim(1), true);
    check(args.packed_b.bytes() == bytes, "matmul: packed_b has {} bytes, not {}", args.packed_b.bytes(), bytes);
  }
  const EpilogueCall call = epilogue_call(args);
  return {.args = args,
          .kernels = kernels,
          .type = args.a.dtype(),
          .kind = kind,
          .m = args.y.dim(0),
          .n = args.y.dim(1),
          .k = args.a.dim(args.transpose_a ? 0 : 1),
          .tile_rows = kernels.tile_rows(kind),
          .tiles = kernels.tiles(kind),
          .epilogue = kernels.epilogue(e.kind, e.f),
          .call = call,
          .stores_directly = e.kind == Epilogue::Kind::none && !e.bias && call.y.type == DType::f32,
          .results = {call.y, call.act, call.gate, call.up, call.pre, call.dgate}};
}

// The work of one thread on one tile of y.
class TileWorker {
 public:
  // packed_a: all of a, row block by row block; null: it packs what it needs.
  TileWorker(const Product& p, const std::byte* packed_a, const std::byte* packed_b, int64_t first_panel,
             std::byte* scratch)
      : p_(p),
        packed_a_(packed_a),
        packed_b_(packed_b),
        first_panel_(first_panel),
        a_(scratch),
        sums_(reinterpret_cast<float*>(scratch + p.plan.a_bytes)),
        tile_(reinterpret_cast<float*>(scratch + p.plan.a_bytes + p.plan.sums_bytes)) {}

  void run(int64_t row, int64_t panel_begin, int64_t panel_end) {
    const MatmulPlan& plan = p_.plan;
    take_rows(row);
    const std::byte* a = packed_a_ ? packed_a_ + row / plan.row_block * plan.row_block_bytes() : a_;
    if (plan.whole_a) {
      for (int64_t block = 0; !packed_a_ && block < plan.num_step_blocks; ++block)
        pack_a(block, a_ + block * plan.a_block_bytes);
      for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        for (int64_t block = 0; block < plan.num_step_blocks; ++block)
          multiply(block, a + block * plan.a_block_bytes, panel, sums_);
      }
      return;
    }
    for (int64_t block = 0; block < plan.num_step_blocks; ++block) {
      if (!packed_a_) pack_a(block, a_);
      for (int64_t panel = panel_begin; panel < panel_end; ++panel)
        multiply(block, a, panel, sums_ + (panel - panel_begin) * rows_ * kPanelCols);
      if (packed_a_) a += plan.a_block_bytes;
    }
  }

  // A step block of a row block, to where run expects it of packed_a.
  void pack(int64_t row, int64_t block, std::byte* packed_a) {
    take_rows(row);
    const MatmulPlan& plan = p_.plan;
    pack_a(block, packed_a + row / plan.row_block * plan.row_block_bytes() + block * plan.a_block_bytes);
  }

 private:
  void take_rows(int64_t row) {
    row_ = row;
    rows_ = std::min(p_.plan.row_block, p_.m - row);
  }

  void pack_a(int64_t block, std::byte* to) {
    const int64_t per_step = p_.type == DType::bf16 ? 2 : 1;
    const int64_t k0 = block * p_.plan.step_block * per_step;
    const BlockOfA from{.a = p_.args.a.raw(),
                        .ld = p_.args.transpose_a ? p_.m : p_.k,
                        .row = row_,
                        .rows = rows_,
                        .k = k0,
                        .num_k = std::min(p_.plan.step_block * per_step, p_.k - k0)};
    p_.kernels.pack_a(p_.kind, p_.args.transpose_a, from, to, p_.tile_rows);
  }

  // Adds one step block of one panel to `sums` [rows, kPanelCols], or finishes y when it is the last.
  void multiply(int64_t block, const std::byte* a, int64_t panel, float* sums) {
    const MatmulPlan& plan = p_.plan;
    const int64_t step = block * plan.step_block;
    const int64_t cols = std::min<int64_t>(kPanelCols, p_.n - panel * kPanelCols);
    const int vector = p_.kernels.vector_cols;
    TileCall call;
    call.steps = std::min(plan.step_block, plan.steps - step);
    const int64_t words = packed_words(p_.kind, call.steps);
    // While this block of the panel is multiplied, the next one comes closer, a part with each tile. One tile alone
    // is bound by memory.
    const int64_t parts = ceil_div(rows_, p_.tile_rows) * ceil_div(cols, 2 * vector);
    const int64_t block_bytes = (plan.whole_a ? call.steps : plan.steps) * kPanelCols * 4;
    const std::byte* next = packed_b_ + ((panel - first_panel_) * plan.steps + step) * kPanelCols * 4 +
                            (parts == 1 && plan.whole_a ? kNearAhead : block_bytes);
    call.ahead_bytes = kPanelCols * 4 / parts;
    int64_t part = 0;
    for (int64_t col = 0; col < cols; col += 2 * vector) {
      const int vectors = cols - col > vector ? 2 : 1;
      call.b = packed_b_ + (((panel - first_panel_) * plan.steps + step) * kPanelCols + col) * 4;
      int64_t tile = 0;
      for (int64_t row = 0; row < rows_; row += tile_rows_) {
        tile_rows_ = next_tile_rows(rows_ - row, p_.tile_rows);
        call.a = a + tile_offset(row, tile++, words) * 4;
        call.ahead = next + part++ * call.ahead_bytes * call.steps;
        finish(call, block, row, panel * kPanelCols + col, int(std::min<int64_t>(cols - col, 2 * vector)), vectors,
               sums + row * kPanelCols + col);
      }
    }
  }

  // Chooses where the sums of a tile come from and go to, and runs it.
  void finish(TileCall& call, int64_t block, int64_t row, int64_t col, int cols, int vectors, float* sums) {
    const bool first = block == 0, last = block + 1 == p_.plan.num_step_blocks;
    const bool direct = p_.stores_directly && cols == vectors * p_.kernels.vector_cols;
    float* y = direct ? reinterpret_cast<float*>(p_.call.y.data) + (row_ + row) * p_.n + col : nullptr;
    call.add = !first ? sums : direct && p_.args.accumulate ? y : nullptr;
    call.add_stride = !first ? kPanelCols : p_.n;
    call.out = !last ? sums : direct ? y : tile_;
    call.out_stride = last && direct ? p_.n : kPanelCols;
    if (last || call.add == y) {
      for (const EpilogueOperand& operand : p_.results) fetch(operand, row_ + row, col + kPanelCols);
    }
    p_.tiles[(tile_rows_ - 1) * 2 + vectors - 1](call);
    if (last && !direct) p_.epilogue(p_.call, tile_, row_ + row, col, tile_rows_, cols);
  }

  // Brings what the end of the tile in the next panel will read and write closer. Inlined, since GCC removes calls of
  // functions that only prefetch.
  [[gnu::always_inline]] void fetch(const EpilogueOperand& operand, int64_t row, int64_t col) const {
    if (!operand.data) return;
    const auto size = int64_t(size_of(operand.type));
    for (int i = 0; i < tile_rows_; ++i) {
      const std::byte* at = operand.data + ((row + i) * p_.n + col) * size;
      __builtin_prefetch(at, 1);
      __builtin_prefetch(at + 2 * p_.kernels.vector_cols * size - 1, 1);
    }
  }

  const Product& p_;
  const std::byte* packed_a_;
  const std::byte* packed_b_;
  int64_t first_panel_;
  std::byte* a_;
  float* sums_;
  float* tile_;
  int64_t row_ = 0, rows_ = 0;
  int tile_rows_ = 0;
};

// All tiles of the columns whose panels are packed at packed_b. The last tile of each thread is cut into parts, so
// that a thread which was held up leaves some of its own to the others.
void multiply_panels(ThreadTeam& team, const Product& p, const std::byte* packed_a, const std::byte* packed_b,
                     int64_t panel_begin, int64_t panel_end, std::byte* const* scratch) {
  constexpr int64_t kParts = 4;
  const MatmulPlan& plan = p.plan;
  const int64_t tiles = ceil_div(panel_end - panel_begin, plan.panel_block) * plan.num_row_blocks;
  const int64_t num_cut = team.size() > 1 ? std::min<int64_t>(tiles, team.size()) : 0, num_whole = tiles - num_cut;
  team.parallel_for(num_whole + num_cut * kParts, 1, [&](int64_t task, int64_t, int worker) {
    const bool is_whole = task < num_whole;
    const int64_t tile = is_whole ? task : num_whole + (task - num_whole) / kParts;
    const int64_t part = is_whole ? 0 : (task - num_whole) % kParts, parts = is_whole ? 1 : kParts;
    const int64_t panel = panel_begin + tile / plan.num_row_blocks * plan.panel_block;
    const int64_t panels = std::min(panel_end - panel, plan.panel_block);
    const int64_t begin = panel + panels * part / parts, end = panel + panels * (part + 1) / parts;
    if (begin == end) return;
    TileWorker(p, packed_a, packed_b, panel_begin, scratch[worker])
        .run(tile % plan.num_row_blocks * plan.row_block, begin, end);
    if (p.kind == DotKind::bf16_tiles) amx::release();
  });
}

void pack_panels(ThreadTeam& team, const MatmulKernels& kernels, const Tensor& b, bool transpose_b, int64_t k,
                 int64_t n, int64_t panel_begin, int64_t panel_end, std::byte* packed) {
  const int64_t steps = num_steps(b.dtype(), k), blocks = ceil_div(steps, kPackStep);
  team.parallel_for((panel_end - panel_begin) * blocks, 1, [&](int64_t task, int64_t, int) {
    const int64_t panel = task / blocks, step = task % blocks * kPackStep;
    kernels.pack_panel(b.dtype(), transpose_b, b.raw(), k, n, panel_begin + panel, step,
                       std::min(kPackStep, steps - step), packed + panel * panel_words(b.dtype(), k) * 4);
  });
}

// Scratch of each worker, of which the first has some for all of them behind its own.
struct WorkerScratch {
  static constexpr int kMostWorkers = 1024;  // as many as a cpu_set_t has
  std::byte* of[kMostWorkers];
  std::byte* shared;

  WorkerScratch(Stream& stream, int64_t each, int64_t shared_bytes) {
    const int workers = stream.team().size();
    check(workers <= kMostWorkers, "matmul: a team has at most {} threads, not {}", kMostWorkers, workers);
    for (int i = 0; i < workers; ++i) of[i] = stream.scratch(i, size_t(each + (i == 0 ? shared_bytes : 0)));
    shared = of[0] + each;
  }
};

void plan(Product& p, const ThreadTeam& team, int64_t row_block = 0) {
  p.plan = plan_matmul(p.m, p.n, num_steps(p.type, p.k), p.kind, p.tile_rows, team.size(), row_block);
}

bool is_packed(const MatmulArgs& p) { return p.packed_b && !p.transpose_a && !p.float8 && !p.blocks_b && !p.nf4_b; }

// Products of one a with packed b, planned alike, which share what is packed of a.
class PackedProducts {
 public:
  // False where they are others, or where a is so large that each task should pack what it needs.
  static bool are(std::span<const MatmulArgs> all) {
    return std::ranges::all_of(
        all, [](const MatmulArgs& p) { return is_packed(p) && p.y.numel() > 0 && p.a.bytes() <= kMostBytesOfA; });
  }

  PackedProducts(std::span<const MatmulArgs> all, const MatmulKernels& kernels, const ThreadTeam& team) : all_(all) {
    shapes::check_matmuls_of_one_a(all);
    for (size_t i = 0; i < all.size(); ++i)
      plan(products_[i].emplace(resolve(all[i], kernels)), team, i == 0 ? 0 : plan_of(0).row_block);
  }

  void run(Stream& stream) const {
    ThreadTeam& team = stream.team();
    int64_t each = 0;
    for (size_t i = 0; i < all_.size(); ++i) each = std::max(each, plan_of(i).scratch_bytes());
    const WorkerScratch scratch(stream, each, plan_of(0).num_row_blocks * plan_of(0).row_block_bytes());
    pack(team, scratch.shared);
    if (!are_few()) {
      for (size_t i = 0; i < all_.size(); ++i)
        multiply_panels(team, *products_[i], scratch.shared, packed_b(i), 0, ceil_div(products_[i]->n, kPanelCols),
                        scratch.of);
      return;
    }
    for (size_t i = 0, count = 0; i < all_.size(); i += count) {
      count = count_together(all_.subspan(i));
      multiply_few(team, i, count, scratch);
    }
  }

 private:
  static constexpr size_t kMostBytesOfA = 8 << 20;  // some caches hold it, and many tasks read it

  const MatmulPlan& plan_of(size_t i) const { return products_[i]->plan; }
  const std::byte* packed_b(size_t i) const { return static_cast<const std::byte*>(all_[i].packed_b.raw()); }
  bool are_few() const {
    return products_[0]->m <= kMaxTileRows && plan_of(0).num_row_blocks == 1 && plan_of(0).whole_a;
  }

  // What is packed of a depends on it and on K alone.
  void pack(ThreadTeam& team, std::byte* packed_a) const {
    const MatmulPlan& plan = plan_of(0);
    const auto some = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i)
        TileWorker(*products_[0], nullptr, nullptr, 0, nullptr)
            .pack(i / plan.num_step_blocks * plan.row_block, i % plan.num_step_blocks, packed_a);
    };
    const int64_t count = plan.num_row_blocks * plan.num_step_blocks;
    if (are_few())
      some(0, count, 0);
    else
      team.parallel_for(count, 1, some);
  }

  // Each worker a run of neighbouring panels, which are read as one stream.
  void multiply_few(ThreadTeam& team, size_t first, size_t count, const WorkerScratch& scratch) const {
    const ColumnTasks tasks(all_.subspan(first, count), kPanelCols);
    const auto run = [&](int64_t task, int64_t, int worker) {
      const auto columns = tasks[task];
      const size_t i = first + columns.product;
      const int64_t panel = columns.first / kPanelCols;
      TileWorker(*products_[i], scratch.shared, packed_b(i), 0, scratch.of[worker]).run(0, panel, panel + 1);
      if (products_[i]->kind == DotKind::bf16_tiles) amx::release();
    };
    const int64_t panel_bytes = panel_words(products_[0]->type, products_[0]->k) * 4;
    team.parallel_runs(tasks.count(), 1, run, [&](int64_t task) {
      const auto columns = tasks[task];
      return packed_b(first + columns.product) + columns.first / kPanelCols * panel_bytes;
    });
  }

  std::span<const MatmulArgs> all_;
  std::array<std::optional<Product>, kMostMatmulsOfOneA> products_;
};

}  // namespace

void matmul_with(Stream& stream, const MatmulArgs& args, MatmulIsa isa) {
  ThreadTeam& team = stream.team();
  if (PackedProducts::are({&args, 1})) return PackedProducts({&args, 1}, matmul_kernels(isa), team).run(stream);
  Product p = resolve(args, matmul_kernels(isa));
  if (p.m == 0 || p.n == 0) return;
  plan(p, team);

  const int64_t panels = ceil_div(p.n, kPanelCols), panel_bytes = panel_words(p.type, p.k) * 4;
  int64_t chunk = panels;
  if (!args.packed_b && panel_bytes) chunk = std::clamp<int64_t>(kMaxPackedChunk / panel_bytes, 1, panels);
  const WorkerScratch scratch(stream, p.plan.scratch_bytes(), args.packed_b ? 0 : chunk * panel_bytes);
  if (args.packed_b)
    return multiply_panels(team, p, nullptr, static_cast<const std::byte*>(args.packed_b.raw()), 0, panels,
                           scratch.of);
  for (int64_t begin = 0; begin < panels; begin += chunk) {
    const int64_t end = std::min(panels, begin + chunk);
    if (args.nf4_b)
      pack_nf4_panels(team, p.kernels, p.type, args.nf4_b, args.transpose_b, begin, end, scratch.shared);
    else
      pack_panels(team, p.kernels, args.b, args.transpose_b, p.k, p.n, begin, end, scratch.shared);
    multiply_panels(team, p, nullptr, scratch.shared, begin, end, scratch.of);
  }
}

void matmul(Stream& stream, const MatmulArgs& args) {
  if (args.float8) {
    shapes::check_matmul(args);
    MatmulArgs rounded = args;
    rounded.a = on_float8_grid(stream, args.a, args.transpose_a);
    rounded.b = on_float8_grid(stream, args.b, !args.transpose_b);
    rounded.float8 = false;
    return matmul_with(stream, rounded, best_matmul_isa());
  }
  if (args.blocks_b)
    matmul_blocks_with(stream, {&args, 1}, best_block_isa());
  else
    matmul_with(stream, args, best_matmul_isa());
}

void matmuls_of_one_a(Stream& stream, std::span<const MatmulArgs> products) {
  if (std::ranges::all_of(products, [](const MatmulArgs& p) { return bool(p.blocks_b); }))
    return matmul_blocks_with(stream, products, best_block_isa());
  if (PackedProducts::are(products))
    return PackedProducts(products, matmul_kernels(best_matmul_isa()), stream.team()).run(stream);
  each<matmul>(stream, products);
}

size_t packed_matmul_b_bytes(DType type, int64_t k, int64_t n, bool) {
  if (!can_multiply(type)) return 0;
  return size_t(ceil_div(n, kPanelCols) * panel_words(type, k)) * 4;
}

void pack_matmul_b(Stream& stream, const Tensor& packed, const Tensor& b, bool transpose_b) {
  check_float("b", b);
  const int64_t k = b.dim(transpose_b ? 1 : 0), n = b.dim(transpose_b ? 0 : 1);
  const size_t bytes = packed_matmul_b_bytes(b.dtype(), k, n, transpose_b);
  check(packed.bytes() == bytes, "matmul: packed b has {} bytes, but must have {}", packed.bytes(), bytes);
  pack_panels(stream.team(), matmul_kernels(best_matmul_isa()), b, transpose_b, k, n, 0, ceil_div(n, kPanelCols),
              static_cast<std::byte*>(packed.raw()));
}

}  // namespace weft::cpu
