// ParamNames: which stored tensors hold a parameter of weft, and how; made from a family's table of names.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/models/model_config.h"
#include "weft/pretrained/index_map.h"
#include "weft/pretrained/value_map.h"
#include "weft/tensor/shape.h"

namespace weft {

// What of a stored tensor a parameter is.
enum class Part : uint8_t {
  all,
  query,  // of a tensor that has a layer's queries, keys and values
  key,
  value,
  gate,  // of a tensor that has both halves of a gated feed-forward part
  up,
  latent_query,  // heads whose turned elements come last, pair by pair
  latent,        // of a tensor that has both
  key_rotary,    // whose elements come pair by pair
  latent_key,    // of a tensor that has, for each head, its part of the key and its value
  latent_value,
  index,       // of each head of an index its elements, of which the turned ones come pair by pair
  behind_two,  // of a tensor that has two more rows, its first
  even,        // of a tensor of two stacks of experts, every second row, from the first on
  odd,         // the same from the second on
  head_query,  // of each head: its query, and then the gate of what attention gives
  head_gate,
  // Of what a recurrence reads. By the delta rule: queries, keys and values of all heads; grouped, those of each key
  // head, and the gates of its values. Of selective states: values, keys and queries; of a gated convolution: keys,
  // queries and values.
  state_query,
  state_key,
  state_value,
  state_gate,
  // Grouped: of each key head how much its values learn, then how fast they forget.
  state_beta,
  state_decay,
};

// Whether rows or columns are those of heads of the gated delta rule's values, of which the first ones of all keys
// come before the second ones, where weft has those that share a key side by side.
enum class Tiled : uint8_t { no, rows, cols };

// How a vector lies that is stored as more: as a matrix's one row, as its one column, or, of what all heads of a
// layer with states have, as a row to each key; or as [1, 1, N, 1].
enum class VectorAs : uint8_t { vector, row, column, row_of_key, third_of_four };

struct Layout {
  Part part = Part::all;
  // Every key/value head's queries, key and value lie together, not all queries first.
  bool is_grouped = false;
  bool has_gates = false;  // of selective states: behind the gates of their values, before what says their steps
  Tiled tiled = Tiled::no;
  bool is_transposed = false;  // [in, out]
  bool is_paired = false;      // of each head, the halves that rotary positions turn lie pair by pair
  bool is_swapped = false;     // or the second half before the first, which turns them the other way
  bool has_halves = false;     // latent parts have halves in place of pairs, and so has an index, whose come last
  VectorAs as = VectorAs::vector;
  bool is_convolution = false;  // [C, 1, W]
  bool is_by_head = false;      // a matrix to each head, whose number is the first dim
  ValueMap values = ValueMap::same;
};

// A row of a family's table. '#' stands for the layer's number, '@' for the expert's. Names leave out what a weight
// and its bias differ in, ".weight" and ".bias", unless the whole name is in the table.
struct NameRow {
  std::string_view param, stored;
  Layout layout = {};
};

// A table out of parts that families share; the first row of a parameter counts.
std::vector<NameRow> joined(std::initializer_list<std::span<const NameRow>> parts);

struct ParamNames {
  std::string param;
  Shape shape;                      // of the whole parameter
  std::vector<std::string> stored;  // one, or one for each index of the first dim
  IndexMap rows = {}, cols = {};    // of one stored tensor; it has no more columns than the parameter
  bool is_transposed = false;
  ValueMap values = ValueMap::same;
  int64_t num_matrices = 0;          // above 0: rows lie as so many matrices, perhaps each transposed
  bool is_stack_of_vectors = false;  // [E, O], whose rows are E O numbers
  int64_t row_of_vector = 0;         // above 0: a vector, stored as a matrix with rows of so many
  bool is_third_of_four = false;     // [N], stored as [1, 1, N, 1]
  bool is_convolution = false;       // [C, W], stored as [C, 1, W]

  // Of one stored tensor's share of the parameter.
  int64_t num_rows() const { return num_all_rows() / int64_t(stored.size()); }
  int64_t num_cols() const { return shape.rank() > 1 && !is_stack_of_vectors ? shape[-1] : 1; }
  // Of one stored matrix.
  int64_t num_stored_rows() const { return rows.total > 0 ? rows.total : num_rows_of_matrix(); }
  std::vector<int64_t> stored_dims() const;

  // Calls visit(index of `stored`, first stored element, step between stored elements, element of the parameter,
  // count) for elements [first, first + n) of the parameter, in order.
  template <class Visit>
  void each_run(int64_t first, int64_t n, Visit&& visit) const;

 private:
  int64_t num_all_rows() const { return shape.numel() / num_cols(); }
  int64_t num_rows_of_matrix() const { return num_matrices > 0 ? num_rows() / num_matrices : num_rows(); }
};

// Of every parameter and router bias of the model, in the order of use. Without a table, the names are weft's own.
// Throws Error when the table lacks one.
std::vector<ParamNames> names_of(const ModelConfig& config);
std::vector<ParamNames> names_of(const ModelConfig& config, std::span<const NameRow> table);

// Whether a name is the pattern's, with any number for '#' and '@', and anything for a '*' at the end.
bool matches_pattern(std::string_view name, std::string_view pattern);

template <class Visit>
void ParamNames::each_run(int64_t first, int64_t n, Visit&& visit) const {
  const int64_t width = num_cols(), per_tensor = num_rows(), end = first + n, total = num_stored_rows();
  const int64_t per_matrix = num_rows_of_matrix();
  const bool is_plain = rows.keeps_order() && cols.keeps_order() && !is_transposed && num_matrices == 0;
  for (int64_t at = first; at < end;) {
    const int64_t tensor = at / (per_tensor * width), inside = at % (per_tensor * width);
    const int64_t row = inside / width, col = inside % width;
    const int64_t in_row = cols.keeps_order() ? width - col : cols.run - col % cols.run;
    const int64_t left = is_plain ? per_tensor * width - inside : in_row, count = std::min(left, end - at);
    const int64_t matrix = row / per_matrix, stored_row = rows(row % per_matrix), stored_col = cols(col);
    if (is_transposed)
      visit(size_t(tensor), (matrix * width + stored_col) * total + stored_row, total, at, count);
    else
      visit(size_t(tensor), (matrix * total + stored_row) * width + stored_col, int64_t(1), at, count);
    at += count;
  }
}

}  // namespace weft
