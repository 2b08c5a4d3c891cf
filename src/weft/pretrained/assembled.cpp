// Assembled tensors: the description by which parameters are read, walked the other way.
#include "weft/pretrained/assembled.h"

namespace weft {

int64_t AssembledTensor::numel() const {
  int64_t n = 1;
  for (const int64_t dim : dims) n *= dim;
  return n;
}

std::vector<AssembledTensor> assemble(const std::vector<ParamNames>& names) {
  std::vector<AssembledTensor> all;
  std::unordered_map<std::string, size_t> index;
  for (const ParamNames& n : names)
    for (size_t i = 0; i < n.stored.size(); ++i) {
      const auto [found, is_new] = index.emplace(n.stored[i], all.size());
      if (is_new) all.push_back({n.stored[i], n.stored_dims(), {}});
      AssembledTensor& tensor = all[found->second];
      check(tensor.dims == n.stored_dims(), "the parts of {} have different shapes", tensor.name);
      tensor.parts.push_back({&n, i});
    }
  return all;
}

void read_assembled(const ModelSource& source, const AssembledTensor& tensor, std::span<float> out) {
  std::vector<float> run;
  for (const auto& [names, index] : tensor.parts) {
    const int64_t share = names->num_rows() * names->num_cols();
    names->each_run(int64_t(index) * share, share,
                    [&](size_t, int64_t first, int64_t step, int64_t at, int64_t count) {
                      if (step == 1) return source.read(names->param, at, out.subspan(size_t(first), size_t(count)));
                      run.resize(size_t(count));
                      source.read(names->param, at, run);
                      for (int64_t i = 0; i < count; ++i) out[size_t(first + i * step)] = run[size_t(i)];
                    });
    if (names->values != ValueMap::same)  // of tensors with one part only
      for (float& x : out) x = stored_value(names->values, x);
  }
}

}  // namespace weft
