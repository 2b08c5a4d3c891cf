// recipe_text: a planned recipe as the TOML that trains it.
#include <fmt/format.h>

#include <iterator>

#include "weft/models/model_fields.h"
#include "weft/plan/search.h"

namespace weft::plan {
namespace {

// Writes the keys in which a model differs from its family.
class FieldWriter {
 public:
  FieldWriter(const ModelConfig& usual, std::string& out) : usual_(usual), out_(out) {}

  // The values of the family, in the order of visiting.
  struct Collector {
    std::vector<std::string> values;
    void number(const char*, int64_t& v) { values.push_back(fmt::format("{}", v)); }
    void number(const char*, float& v) { values.push_back(fmt::format("{}", v)); }
    void number(const char*, double& v) { values.push_back(fmt::format("{}", v)); }
    void flag(const char*, bool& v) { values.push_back(v ? "true" : "false"); }
    void choice(const char*, std::span<const std::string_view> names, int& i) {
      values.push_back(fmt::format("\"{}\"", names[size_t(i)]));
    }
    void list(const char*, std::vector<double>& v) { values.push_back(fmt::format("[{}]", fmt::join(v, ", "))); }
    void begin_group(const char*, bool is_on) { is_off = !is_on; }
    void end_group() { is_off = false; }
    bool is_off = false;
  };

  void write(ModelConfig config) {
    ModelConfig usual = usual_;
    Collector theirs;
    visit_model_fields(theirs, usual);
    usual_values_ = std::move(theirs.values);
    visit_model_fields(*this, config);
  }

  void number(const char* key, int64_t& v) { line(key, fmt::format("{}", v)); }
  void number(const char* key, float& v) { line(key, fmt::format("{}", v)); }
  void number(const char* key, double& v) { line(key, fmt::format("{}", v)); }
  void flag(const char* key, bool& v) { line(key, v ? "true" : "false"); }
  void choice(const char* key, std::span<const std::string_view> names, int& i) {
    line(key, fmt::format("\"{}\"", names[size_t(i)]));
  }
  void list(const char* key, std::vector<double>& v) { line(key, fmt::format("[{}]", fmt::join(v, ", "))); }
  void begin_group(const char*, bool is_on) { is_off_ = !is_on; }
  void end_group() { is_off_ = false; }

 private:
  void line(const char* key, const std::string& value) {
    const std::string& usual = usual_values_[next_++];
    if (!is_off_ && value != usual) fmt::format_to(std::back_inserter(out_), "{} = {}\n", key, value);
  }

  const ModelConfig& usual_;
  std::string& out_;
  std::vector<std::string> usual_values_;
  size_t next_ = 0;
  bool is_off_ = false;
};

}  // namespace

std::string recipe_text(const SearchRequest& request, const Recipe& recipe, const std::string& data_path) {
  std::string out = fmt::format("# Planned for {} x {}: {}.\n[model]\n", request.cluster.num_devices,
                                request.cluster.hardware.name, describe_layout(recipe));
  const auto to = std::back_inserter(out);
  if (!recipe.model_path.empty()) {
    fmt::format_to(to, "path = \"{}\"\n", recipe.model_path);
  } else {
    fmt::format_to(to, "family = \"{}\"\n", recipe.model.family);
    const ModelConfig usual = family_defaults(recipe.model.family);
    FieldWriter(usual, out).write(recipe.model);
  }
  const TrainConfig& t = recipe.train;
  const MeshConfig& m = recipe.mesh;
  constexpr const char* kPrecisions[] = {"fp32", "bf16", "fp16"};
  constexpr const char* kRecomputed[] = {"none", "attention", "mlp", "block"};
  constexpr const char* kModes[] = {"ring", "ulysses", "allgather"};
  fmt::format_to(to, "\n[data]\ntrain = \"{}\"\n", data_path);
  fmt::format_to(to, "\n[train]\nsteps = {}\nseq_len = {}\nglobal_batch = {}\nmicro_batch = {}\nprecision = \"{}\"\n",
                 t.steps, t.seq_len, t.global_batch, t.micro_batch, kPrecisions[int(t.precision)]);
  fmt::format_to(to, "\n[mesh]\ndp = {}\ntp = {}\npp = {}\ncp = {}\nep = {}\nzero = {}\n", m.shape.dp(), m.shape.tp,
                 m.shape.pp, m.shape.cp, m.shape.ep, int(m.zero));
  if (m.shape.replicate > 1) fmt::format_to(to, "hsdp = {}\n", m.shape.replicate);
  if (m.shape.cp > 1) fmt::format_to(to, "cp_mode = \"{}\"\n", kModes[int(m.cp_mode)]);
  if (m.sequence_parallel) out += "sequence_parallel = true\n";
  if (m.shape.pp > 1)
    fmt::format_to(to, "schedule = \"{}\"\nvirtual_stages = {}\n", name_of(m.schedule), m.virtual_stages);
  fmt::format_to(to, "recompute = \"{}\"\n", kRecomputed[int(t.recompute.what)]);
  return out;
}

}  // namespace weft::plan
