// Products with weights in quantised blocks: rows of a rounded once, then columns in panels, one at a time to a
// thread.
#include "weft/kernels/cpu/matmul_blocks.h"

#include <algorithm>
#include <array>

#include "weft/base/ceil_div.h"
#include "weft/kernels/cpu/amx.h"
#include "weft/kernels/cpu/column_tasks.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cpu {
namespace {

constexpr int64_t kFewCols = 16;         // of a task with few rows: nobody waits long for the last one
constexpr int64_t kRowsOfOneThread = 8;  // are rounded before others have begun

// Rows of a that are rounded together.
struct RowsOfA {
  int64_t first = 0, count = 0;
};

struct Product {
  const MatmulArgs* args = nullptr;
  const BlockKernels* kernels = nullptr;
  EpilogueKernel epilogue = nullptr;
  EpilogueCall call = {};
  int64_t groups = 0, row_bytes = 0;  // of a rounded row of a
  bool is_few = false;
  std::byte* rounded = nullptr;

  Product() = default;
  Product(const MatmulArgs& product, BlockIsa isa)
      : args(&product),
        kernels(&block_kernels(isa, product.blocks_b.type, product.a.dtype())),
        epilogue(matmul_kernels(best_matmul_isa()).epilogue(product.epilogue.kind, product.epilogue.f)),
        call(epilogue_call(product)),
        groups(ceil_div(b().row_blocks() * block_elements(b().type), kGroupElements)),
        row_bytes(rounded_row_bytes(kernels->math, groups)),
        is_few(product.a.dim(0) < rows_worth_a_panel(kernels->math, b().type)) {}

  const BlockMatrix& b() const { return args->blocks_b; }
  int64_t panel_bytes() const { return is_few ? 0 : cpu::panel_bytes(kernels->math, groups); }
  int64_t rounded_bytes(int64_t rows) const { return round_up(rows, kernels->together) * row_bytes; }
  bool rounds_like(const Product& other) const {
    return b().type == other.b().type && b().cols == other.b().cols && b().skip == other.b().skip;
  }

  void round(ThreadTeam& team, RowsOfA rows) const {
    const RoundCall round{.a = args->a.raw(),
                          .dtype = args->a.dtype(),
                          .b = &b(),
                          .groups = groups,
                          .lane_by_lane = !is_few,
                          .together = is_few ? 1 : kernels->together};
    const auto some = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t place = i % round.together;
        kernels->round_row(round, rows.first + i, int(place), rounded + (i - place) * row_bytes);
      }
    };
    if (is_few && rows.count <= kRowsOfOneThread)
      some(0, rows.count, 0);
    else
      team.parallel_for(rows.count, kMostFewRows, some);
  }

  void multiply(RowsOfA rows, int64_t col, int cols, std::byte* panel, float* tile) const {
    if (is_few)
      multiply_few(rows, col, cols, tile);
    else
      multiply_many(rows, col, cols, panel, tile);
  }

 private:
  void multiply_few(RowsOfA rows, int64_t col, int cols, float* tile) const {
    const int64_t passes = ceil_div(rows.count, int64_t(kernels->few));  // over columns that stay in the caches
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t first = rows.count * pass / passes, count = rows.count * (pass + 1) / passes - first;
      kernels->few_rows(b(), groups, rounded + first * row_bytes, int(count), col, cols, tile);
      epilogue(call, tile, rows.first + first, col, int(count), cols);
    }
  }

  void multiply_many(RowsOfA rows, int64_t col, int cols, std::byte* panel, float* tile) const {
    kernels->unpack(b(), groups, col, cols, panel);
    const std::byte* const next = b().row(col + cols);
    const int64_t lines = std::min<int64_t>(b().rows - col - cols, kPanelCols) * b().row_bytes() / 64;
    const int64_t tile_rows = kernels->tile_rows;
    for (int64_t i = 0, count = 0; i < rows.count; i += count) {
      count = std::min(tile_rows, rows.count - i);
      const int64_t first = lines * i / rows.count, end = lines * (i + count) / rows.count;
      kernels->many_rows(b().type, groups, panel, rounded + i * row_bytes, int(count), tile,
                         {next + first * 64, end - first});
      epilogue(call, tile, rows.first + i, col, int(count), cols);
    }
    amx::release();
  }
};

// Products of one a, with the places of what threads share and of what is each one's own.
class Products {
 public:
  Products(std::span<const MatmulArgs> all, BlockIsa isa) : args_(all) {
    shapes::check_matmuls_of_one_a(all);
    for (size_t i = 0; i < all.size(); ++i) products_[i] = Product(all[i], isa);
  }

  void run(Stream& stream) {
    const int64_t m = args_[0].a.dim(0);
    reserve(stream, std::min(m, kMostRoundedRows));
    RowsOfA rows;
    for (rows.first = 0; rows.first < m; rows.first += rows.count) {
      rows.count = std::min(m - rows.first, kMostRoundedRows);
      for (size_t i = 0; i < args_.size(); ++i)
        if (!rounded_before(i)) products_[i].round(stream.team(), rows);
      for (size_t i = 0, count = 0; i < args_.size(); i += count) {
        count = count_together(args_.subspan(i));
        multiply(stream, rows, i, count);
      }
    }
  }

 private:
  static constexpr int64_t kTileBytes = kMaxTileRows * kPanelCols * 4;

  void multiply(Stream& stream, RowsOfA rows, size_t first, size_t count) const {
    const std::span products = std::span(products_).subspan(first, count);
    const bool are_few = std::ranges::all_of(products, &Product::is_few);
    const ColumnTasks tasks(args_.subspan(first, count), are_few ? kFewCols : kPanelCols);
    const auto run = [&](int64_t task, int64_t, int worker) {
      const auto [i, col, cols] = tasks[task];
      std::byte* const mine = stream.scratch(worker, 0);
      products[i].multiply(rows, col, cols, mine + kTileBytes, reinterpret_cast<float*>(mine));
    };
    stream.team().parallel_runs(tasks.count(), 1, run, [&](int64_t task) {
      const auto columns = tasks[task];
      return products[columns.product].b().row(columns.first);
    });
  }

  // The product before that needs the same rounded rows, or null.
  const Product* rounded_before(size_t i) const {
    const auto end = products_.begin() + int64_t(i);
    const auto found = std::find_if(products_.begin(), end, [&](const Product& p) { return p.rounds_like(*end); });
    return found == end ? nullptr : &*found;
  }

  // Of each worker a tile and a panel; of the first also the rounded rows.
  void reserve(Stream& stream, int64_t rows) {
    int64_t panel = 0, rounded = 0;
    for (size_t i = 0; i < args_.size(); ++i) {
      panel = std::max(panel, products_[i].panel_bytes());
      if (!rounded_before(i)) rounded += products_[i].rounded_bytes(rows);
    }
    for (int worker = 0; worker < stream.team().size(); ++worker)
      stream.scratch(worker, size_t(kTileBytes + panel + (worker == 0 ? rounded : 0)));
    std::byte* next = stream.scratch(0, 0) + kTileBytes + panel;
    for (size_t i = 0; i < args_.size(); ++i) {
      const Product* const before = rounded_before(i);
      products_[i].rounded = before ? before->rounded : next;
      if (!before) next += products_[i].rounded_bytes(rows);
    }
  }

  std::span<const MatmulArgs> args_;
  std::array<Product, kMostMatmulsOfOneA> products_;
};

}  // namespace

void matmul_blocks_with(Stream& stream, std::span<const MatmulArgs> products, BlockIsa isa) {
  Products(products, isa).run(stream);
}

}  // namespace weft::cpu
