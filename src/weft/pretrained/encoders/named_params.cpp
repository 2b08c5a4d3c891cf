// NamedParams: from a parameter's name to that of its tensor.
#include "weft/pretrained/encoders/named_params.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <unordered_set>

#include "weft/pretrained/param_names.h"
#include "weft/pretrained/param_values.h"

namespace weft {
namespace {

// The number that stands in `name` where the pattern has '#', or "" where it has none; nothing when they differ.
std::optional<std::string_view> number_in(std::string_view name, std::string_view pattern) {
  if (!matches_pattern(name, pattern)) return {};
  const size_t begin = pattern.find('#');
  if (begin == std::string_view::npos) return "";
  const size_t end = name.find_first_not_of("0123456789", begin);
  return name.substr(begin, end == std::string_view::npos ? end : end - begin);
}

std::string with_number(std::string_view pattern, std::string_view number) {
  std::string name(pattern);
  if (const size_t at = name.find('#'); at != std::string::npos) name.replace(at, 1, number);
  return name;
}

const StoredInfo* find(const StoredTensors& stored, std::string_view base, std::string_view name) {
  const StoredInfo* const info = stored.find(name);
  return info ? info : stored.find(std::string(base) + std::string(name));
}

struct Candidate {
  std::string name;
  int part, parts;
};

std::vector<Candidate> candidates_of(std::string_view param, std::span<const EncoderName> rows) {
  std::vector<Candidate> found;
  for (const EncoderName& row : rows) {
    if (const auto number = number_in(param, row.param))
      found.push_back({with_number(row.stored, *number), row.part, row.parts});
    for (const std::string_view suffix : {".weight", ".bias"}) {
      if (!param.ends_with(suffix)) continue;
      const std::string_view stem = param.substr(0, param.size() - suffix.size());
      if (const auto number = number_in(stem, row.param))
        found.push_back({with_number(row.stored, *number) + std::string(suffix), row.part, row.parts});
    }
  }
  return found;
}

bool is_of_shape(const StoredInfo& info, const Shape& shape, int parts) {
  std::vector<int64_t> dims;
  std::ranges::copy_if(info.dims, std::back_inserter(dims), [](int64_t d) { return d != 1; });
  const bool same_rows = shape.rank() < 2 || shape[0] == 1 || (!dims.empty() && dims[0] == parts * shape[0]);
  return info.numel() == parts * shape.numel() && same_rows;
}

}  // namespace

bool has_stored(const StoredTensors& stored, const EncoderNames& names, std::string_view name) {
  return find(stored, names.base, name) != nullptr;
}

FoundParams find_params(const StoredTensors& stored, const EncoderNames& names, std::span<Param* const> params) {
  FoundParams found;
  std::unordered_set<const StoredInfo*> used;
  for (const Param* param : params) {
    const std::vector<Candidate> candidates = candidates_of(param->name, names.rows);
    check(!candidates.empty(), "no row of the table names {}", param->name);
    const StoredInfo* info = nullptr;
    const auto stands = std::ranges::find_if(candidates, [&](const Candidate& one) {
      info = find(stored, names.base, one.name);
      return info != nullptr;
    });
    if (!info)
      throw Error("{} has no tensor {}, which its configuration needs", stored.path(),
                  fmt::join(candidates | std::views::transform(&Candidate::name), " or "));
    const Shape& whole = param->placement.whole;
    if (!is_of_shape(*info, whole, stands->parts))
      throw Error("{}: tensor {} has another shape than {}{}, which the configuration needs", stored.path(),
                  info->to_text(), stands->parts > 1 ? fmt::format("{} times ", stands->parts) : "", whole);
    found.emplace(param->name, FoundParam{info, stands->part * whole.numel()});
    used.insert(info);
  }
  for (const StoredInfo& info : stored.all()) {
    const bool is_ignored = std::ranges::any_of(names.ignored, [&](std::string_view pattern) {
      std::string_view name = info.name;
      if (name.starts_with(names.base)) name.remove_prefix(names.base.size());
      return matches_pattern(name, pattern);
    });
    if (!used.contains(&info) && !is_ignored)
      throw Error("{}: tensor {} belongs to no part of the model that its configuration describes", stored.path(),
                  info.to_text());
  }
  return found;
}

void load_params(Context& context, const StoredTensors& stored, const FoundParams& found,
                 std::span<Param* const> params, DType dtype) {
  for (Param* param : params) {
    const auto [info, begin] = found.at(param->name);
    param->value = context.empty(dtype, param->shape);
    read_values(context, *param,
                [&](int64_t first, std::span<float> out) { stored.read(*info, begin + first, 1, out); });
    param->value_changed();
  }
}

}  // namespace weft
