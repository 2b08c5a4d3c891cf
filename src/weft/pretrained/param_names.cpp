// ParamNames: patterns, and the rows of fused tensors.
#include "weft/pretrained/param_names.h"

#include <algorithm>
#include <charconv>

#include "weft/models/decoder.h"

namespace weft {
namespace {

struct Whole {
  std::string name;
  Shape shape;
};

std::vector<Whole> params_of(const ModelConfig& config) {
  Decoder whole(config);  // its shapes only
  std::vector<Whole> all;
  for (const Param* p : whole.params()) all.push_back({p->name, p->shape});
  for (const RouterBias* b : whole.router_biases()) all.push_back({b->bias.name, b->bias.shape});
  return all;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "layers.12.mlp.up" -> "layers.#.mlp.up" and "12"
struct Pattern {
  std::string text, layer;
};
Pattern pattern_of(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return {std::string(name), ""};
  const size_t end = name.find('.', kLayers.size());
  return {fmt::format("{}#{}", kLayers, name.substr(end)),
          std::string(name.substr(kLayers.size(), end - kLayers.size()))};
}

std::string replaced(std::string_view text, char mark, std::string_view by) {
  std::string out;
  for (const char c : text) {
    if (c == mark)
      out += by;
    else
      out += c;
  }
  return out;
}

// Of what selective states read.
IndexMap rows_of_selective(const Layout& layout, const ModelConfig& c) {
  const int64_t keys = c.state_key_heads * c.state_key_dim, values = c.state_heads * c.state_value_dim;
  const int64_t value = layout.has_gates ? values : 0, key = value + values, query = key + keys, step = query + keys;
  const int64_t total = step + (layout.has_gates ? c.state_heads : 0);
  switch (layout.part) {
    case Part::state_value: return {.first = value, .total = total};
    case Part::state_key: return {.first = key, .total = total};
    case Part::state_query: return {.first = query, .total = total};
    case Part::state_decay: return {.first = step, .total = total};
    default: return {.first = 0, .total = total};
  }
}

// Of what a gated convolution reads: keys, queries and values.
IndexMap rows_of_gated_conv(const Layout& layout, const ModelConfig& c) {
  const int64_t number = layout.part == Part::state_key ? 0 : layout.part == Part::state_query ? 1 : 2;
  return {.first = number * c.hidden, .total = 3 * c.hidden};
}

// Of what the gated delta rule reads.
IndexMap rows_of_delta(const Layout& layout, const ModelConfig& c) {
  const int64_t dk = c.state_key_dim, per_key = c.state_heads / std::max<int64_t>(c.state_key_heads, 1);
  if (!layout.is_grouped) {
    const int64_t keys = c.state_key_heads * dk, total = 2 * keys + c.state_heads * c.state_value_dim;
    const int64_t first = layout.part == Part::state_query ? 0 : layout.part == Part::state_key ? keys : 2 * keys;
    return {.first = first, .total = total};
  }
  const int64_t values = per_key * c.state_value_dim, group = 2 * (dk + values);
  const auto of_group = [&](int64_t first, int64_t run) -> IndexMap {
    return {.first = first, .total = c.state_key_heads * group, .run = run, .stride = group};
  };
  switch (layout.part) {
    case Part::state_query: return of_group(0, dk);
    case Part::state_key: return of_group(dk, dk);
    case Part::state_value: return of_group(2 * dk, values);
    case Part::state_gate: return of_group(2 * dk + values, values);
    default:
      return {.first = layout.part == Part::state_decay ? per_key : 0,
              .total = 2 * c.state_heads,
              .run = per_key,
              .stride = 2 * per_key};
  }
}

// Of the same elements in the order of heads, where these lie tiled.
IndexMap tiled(IndexMap map, int64_t size, const ModelConfig& c) {
  const int64_t of_each = size / c.state_heads;
  if (c.state_heads == c.state_key_heads) return map;
  map.run = map.stride = of_each;
  map.runs = c.state_heads / c.state_key_heads, map.step = c.state_key_heads * of_each;
  return map;
}

// Each expert's two halves one behind the other, where experts are one tensor of many rows.
IndexMap rows_of_stack(const Layout& layout, const ModelConfig& c) {
  const int64_t ffn = c.expert_ffn;
  return {.first = layout.part == Part::up ? ffn : 0, .total = 2 * ffn * c.experts, .run = ffn, .stride = 2 * ffn};
}

// Rows of a part of a fused tensor, for its weight and its bias alike. shape: of the parameter.
IndexMap rows_of(const Layout& layout, const ModelConfig& c, const Shape& shape, bool is_by_expert) {
  const int64_t d = c.head_dim, q = c.heads * d, kv = c.kv_heads * d, per_group = c.heads / c.kv_heads;
  const int64_t group = (per_group + 2) * d, ffn = is_by_expert ? c.expert_ffn : shape[0];
  switch (layout.part) {
    case Part::all:
      if (!layout.is_paired && !layout.is_swapped) return {};
      return {.run = d,
              .stride = d,
              .turned = c.turned_dim(),
              .lie = layout.is_swapped ? Turned::swapped : Turned::pairs};
    case Part::gate: return {.first = 0, .total = 2 * ffn};
    case Part::up: return {.first = ffn, .total = 2 * ffn};
    case Part::query:
      if (!layout.is_grouped) return {.first = 0, .total = q + 2 * kv};
      return {.first = 0, .total = q + 2 * kv, .run = d, .runs = per_group, .stride = group};
    case Part::key:
      if (!layout.is_grouped) return {.first = q, .total = q + 2 * kv};
      return {.first = per_group * d, .total = q + 2 * kv, .run = d, .runs = 1, .stride = group};
    case Part::value:
      if (!layout.is_grouped) return {.first = q + kv, .total = q + 2 * kv};
      return {.first = (per_group + 1) * d, .total = q + 2 * kv, .run = d, .runs = 1, .stride = group};
    case Part::latent_query: {
      const int64_t rest = d - c.rotary_dim;
      return {.first = 0,
              .total = q,
              .run = d,
              .stride = d,
              .turned_at = rest,
              .turned = c.rotary_dim,
              .lie = layout.has_halves ? Turned::halves : Turned::pairs};
    }
    case Part::even:
    case Part::odd:
      return {.first = layout.part == Part::odd,
              .total = 2 * c.expert_ffn * (is_by_expert ? 1 : c.experts),
              .run = 1,
              .stride = 2};
    case Part::behind_two: return {.first = 2, .total = c.context + 2};
    case Part::latent: return {.first = 0, .total = c.kv_rank + c.rotary_dim};
    case Part::key_rotary:
      return {.first = c.kv_rank,
              .total = c.kv_rank + c.rotary_dim,
              .run = c.rotary_dim,
              .stride = c.rotary_dim,
              .turned = c.rotary_dim,
              .lie = layout.has_halves ? Turned::halves : Turned::pairs};
    case Part::latent_key:
    case Part::latent_value: {
      const int64_t key = d - c.rotary_dim, both = key + c.values_dim();
      const bool is_key = layout.part == Part::latent_key;
      return {
          .first = is_key ? 0 : key, .total = c.heads * both, .run = is_key ? key : c.values_dim(), .stride = both};
    }
    case Part::index:
      return {.run = c.index_head_dim,
              .stride = c.index_head_dim,
              .turned_at = layout.has_halves ? c.index_head_dim - c.rotary_dim : 0,
              .turned = c.rotary_dim,
              .lie = layout.has_halves ? Turned::halves : Turned::pairs};
    case Part::head_query:
    case Part::head_gate:
      return {.first = layout.part == Part::head_gate ? d : 0, .total = 2 * q, .run = d, .stride = 2 * d};
    default:
      switch (c.state_rule) {
        case StateKind::delta:
        case StateKind::kimi_delta: return rows_of_delta(layout, c);
        case StateKind::selective: return rows_of_selective(layout, c);
        case StateKind::convolution: return rows_of_gated_conv(layout, c);
      }
      return {};
  }
}

int64_t row_of_vector(VectorAs as, const Shape& shape, const ModelConfig& c) {
  switch (as) {
    case VectorAs::row: return shape[0];
    case VectorAs::column: return 1;
    case VectorAs::row_of_key: return shape[0] / std::max<int64_t>(c.state_key_heads, 1);
    default: return 0;
  }
}

// The table's row for a parameter, and what to append to the stored name.
struct Found {
  const NameRow* row = nullptr;
  std::string_view suffix;
};
Found find_row(std::string_view pattern, std::span<const NameRow> table) {
  for (const NameRow& row : table)
    if (row.param == pattern) return {&row, ""};
  for (const std::string_view suffix : {".weight", ".bias"})
    for (const NameRow& row : table)
      if (pattern.ends_with(suffix) && row.param == pattern.substr(0, pattern.size() - suffix.size()))
        return {&row, suffix};
  return {};
}

}  // namespace

std::vector<NameRow> joined(std::initializer_list<std::span<const NameRow>> parts) {
  std::vector<NameRow> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<int64_t> ParamNames::stored_dims() const {
  const int64_t total = num_stored_rows();
  if (is_third_of_four) return {1, 1, total, 1};
  if (shape.rank() == 1)
    return row_of_vector > 0 ? std::vector{total / row_of_vector, row_of_vector} : std::vector{total};
  if (is_convolution) return {total, 1, num_cols()};
  const bool is_stack = stored.size() == 1;
  if (is_stack_of_vectors) return is_stack ? std::vector{shape[0], total / shape[0]} : std::vector{total};
  if (num_matrices > 0)
    return is_transposed ? std::vector{num_matrices, num_cols(), total}
                         : std::vector{num_matrices, total, num_cols()};
  if (shape.rank() > 2 && is_stack) return {shape[0], total / shape[0], num_cols()};
  return is_transposed ? std::vector{num_cols(), total} : std::vector{total, num_cols()};
}

std::vector<ParamNames> names_of(const ModelConfig& config) {
  std::vector<ParamNames> all;
  for (const Whole& p : params_of(config)) all.push_back({.param = p.name, .shape = p.shape, .stored = {p.name}});
  return all;
}

std::vector<ParamNames> names_of(const ModelConfig& config, std::span<const NameRow> table) {
  std::vector<ParamNames> all;
  for (const Whole& p : params_of(config)) {
    const Pattern pattern = pattern_of(p.name);
    const auto [row, suffix] = find_row(pattern.text, table);
    if (!row) throw Error("{} models hold no {}: the model cannot be written as one", config.family, p.name);
    const std::string stored = replaced(row->stored, '#', pattern.layer) + std::string(suffix);
    const bool is_matrix = p.shape.rank() > 1, is_one = stored.find('@') == std::string::npos;
    const bool is_half = row->layout.part == Part::gate || row->layout.part == Part::up;
    const bool is_stack = p.shape.rank() > 2 && is_one, is_by_expert = is_stack && row->layout.is_transposed;
    ParamNames names{.param = p.name,
                     .shape = p.shape,
                     .stored = {},
                     .rows = is_stack && is_half && !is_by_expert
                                 ? rows_of_stack(row->layout, config)
                                 : rows_of(row->layout, config, p.shape, is_by_expert),
                     .is_transposed = row->layout.is_transposed && is_matrix,
                     .values = suffix == ".bias" ? ValueMap::same : row->layout.values,
                     .num_matrices = is_by_expert                          ? p.shape[0]
                                     : row->layout.is_by_head && is_matrix ? config.heads
                                                                           : 0,
                     .is_stack_of_vectors = is_stack_of_vectors(p.name, p.shape),
                     .row_of_vector = row_of_vector(row->layout.as, p.shape, config),
                     .is_third_of_four = row->layout.as == VectorAs::third_of_four,
                     .is_convolution = row->layout.is_convolution};
    if (row->layout.tiled == Tiled::rows) names.rows = tiled(names.rows, p.shape[0], config);
    if (row->layout.tiled == Tiled::cols) names.cols = tiled(names.cols, p.shape[-1], config);
    if (is_one)
      names.stored.push_back(stored);
    else
      for (int64_t e = 0; e < p.shape[0]; ++e) names.stored.push_back(replaced(stored, '@', std::to_string(e)));
    all.push_back(std::move(names));
  }
  return all;
}

bool matches_pattern(std::string_view name, std::string_view pattern) {
  size_t at = 0;
  for (const char c : pattern) {
    if (c == '*') return true;
    if (c != '#' && c != '@') {
      if (at >= name.size() || name[at++] != c) return false;
      continue;
    }
    const size_t begin = at;
    while (at < name.size() && is_digit(name[at])) ++at;
    if (at == begin) return false;
  }
  return at == name.size();
}

}  // namespace weft
