// PeftFolder: which tensors are whose, and their rows and columns as weft has them.
#include "weft/pretrained/peft_folder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "weft/base/file.h"
#include "weft/pretrained/hf_family.h"
#include "weft/pretrained/peft.h"
#include "weft/pretrained/text_part.h"

namespace weft {
namespace {

constexpr std::string_view kExperts = ".experts", kInner = ".base_layer", kGateUp = ".gate_up_proj",
                           kDown = ".down_proj";

JsonDocument read_config(const std::string& folder) {
  constexpr uint64_t kMostBytes = uint64_t(16) << 20;
  const std::string source = join_path(folder, kPeftConfigName);
  if (!exists(FileSystem::real(), source))
    throw Error("{} has no {}: name a folder that PEFT wrote", folder, kPeftConfigName);
  return JsonDocument::parse(read_file(source, kMostBytes), source);
}

std::unique_ptr<StoredTensors> open_weights_of(const std::string& folder) {
  const std::string file = join_path(folder, kPeftWeightsName);
  if (!exists(FileSystem::real(), file))
    throw Error("{} has no {}: let PEFT save the adapter again, with safe_serialization=True", folder,
                kPeftWeightsName);
  return text_part_tensors(open_safetensors(file), kPeftPrefix);
}

bool is_empty(const JsonView& value) { return (value.is_array() || value.is_object()) && value.size() == 0; }

// Keys that change what an adapter computes, where they are not as weft computes.
void refuse_others(const JsonView& json, const std::string& source) {
  const auto refuse = [&](const char* key) { throw Error("{}: weft cannot do what {} says", source, key); };
  if (json.string_or("peft_type", "LORA") != "LORA") refuse("peft_type");
  if (json.string_or("bias", "none") != "none") refuse("bias");
  for (const char* key : {"layer_replication", "alora_invocation_tokens"})
    if (json.has(key) && !is_empty(json.at(key))) refuse(key);
  // PEFT names both of a model that scores texts, which has one of them.
  constexpr const char* kWhole = "modules_to_save";
  if (!json.has(kWhole) || is_empty(json.at(kWhole))) return;
  const JsonView whole = json.at(kWhole);
  for (int64_t i = 0; i < whole.size(); ++i)
    if (!whole.is_array() || (whole.at(i).string() != "score" && whole.at(i).string() != "classifier"))
      refuse(kWhole);
}

// What an adapter beside a parameter is, by the last parts of the parameter's name; 0: it has none.
LoraTargets target_of(std::string_view param) {
  struct Row {
    std::string_view linear;
    LoraTarget target;
  };
  using enum LoraTarget;
  static constexpr Row kRows[] = {
      {".attention.query", query},
      {".attention.gate", query},
      {".attention.key", key},
      {".attention.value", value},
      {".attention.output", output},
      {".mlp.gate", gate},
      {".mlp.up", up},
      {".mlp.down", down},
      {".experts.gate", expert_gate},
      {".experts.up", expert_up},
      {".experts.down", expert_down},
      {".shared.gate", gate},
      {".shared.up", up},
      {".shared.down", down},
      {".moe.router", router},
      {".moe.shared_gate", shared_gate},
      {".moe.latent_down", latent_down},
      {".moe.latent_up", latent_up},
      {".state.query", state_inputs},
      {".state.key", state_inputs},
      {".state.value", state_inputs},
      {".state.gate", state_gate},
      {".state.gate_down", state_gate},
      {".state.output", state_output},
      {".state.decay", state_decay},
      {".state.decay_down", state_decay},
      {".state.beta", state_beta},
  };
  const auto* const row = std::ranges::find_if(kRows, [&](const Row& r) { return param.ends_with(r.linear); });
  return row == std::end(kRows) ? LoraTargets(0) : bit_of(row->target);
}

// Some families' files call a layer of experts, and rates of states, otherwise than Transformers' modules do from
// version 5 on.
std::string name_in_files(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {{".mlp.", ".block_sparse_moe."},
                                                                        {".forget_gate.", "."}};
  for (const auto& [of_module, in_files] : kRenamed)
    if (const size_t at = name.find(of_module); at != std::string::npos) name.replace(at, of_module.size(), in_files);
  return name;
}

// Whether a layer has what a family's row names: by one name layers may have attention, or states.
bool is_there(const NameRow& row, const std::string& module, const ModelConfig& base) {
  constexpr std::string_view kLayers = ".layers.";
  const size_t at = module.find(kLayers);
  if (!base.has_states() || at == std::string::npos) return true;
  int64_t layer = -1;
  std::from_chars(module.data() + at + kLayers.size(), module.data() + module.size(), layer);
  if (layer < 0 || layer >= base.layers) return true;
  if (row.param.starts_with("layers.#.attention.")) return base.attends(layer);
  return !row.param.starts_with("layers.#.state.") || base.is_recurrent(layer);
}

// Those that stand beside a tensor, of which several parameters may be parts.
LoraTargets targets_beside(const std::string& module, const ModelConfig& base) {
  LoraTargets targets = 0;
  const std::string in_files = name_in_files(module);
  for (const HfFamily& family : hf_families()) {
    if (family.family != base.family) continue;
    for (const NameRow& row : family.names(base))
      if (is_there(row, module, base) &&
          (matches_pattern(module, row.stored) || matches_pattern(in_files, row.stored)))
        targets |= target_of(row.param);
  }
  return targets;
}

LoraTargets targets_of_stack(std::string_view parameter) {
  using enum LoraTarget;
  return parameter.ends_with(kDown) ? bit_of(expert_down) : bit_of(expert_gate) | bit_of(expert_up);
}

}  // namespace

PeftFolder::PeftFolder(const std::string& folder)
    : source_(join_path(folder, kPeftConfigName)), json_(read_config(folder)) {
  refuse_others(json_.root(), source_);
  ranks_ = patterns_of("rank_pattern"), alphas_ = patterns_of("alpha_pattern");
  weights_ = open_weights_of(folder);
  find_modules();
}

void PeftFolder::find_modules() {
  for (const StoredInfo& info : weights_->all()) {
    const auto is_part = [&](std::string_view suffix) {
      return info.name.starts_with(kPeftPrefix) && info.name.ends_with(suffix);
    };
    const auto module = [&](std::string_view suffix) -> Module& {
      return modules_[info.name.substr(kPeftPrefix.size(), info.name.size() - kPeftPrefix.size() - suffix.size())];
    };
    constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight", kLength = ".lora_magnitude_vector";
    if (is_part(kA))
      module(kA).a = &info;
    else if (is_part(kB))
      module(kB).b = &info;
    else if (is_part(kLength))
      module(kLength).magnitude = &info;
    else if (info.name == kPeftScore && info.dims.size() == 2 && info.dims.front() > 0)
      score_ = &info;
    else
      throw Error("{}: tensor {} belongs to no adapter that weft knows", weights_->path(), info.to_text());
  }
  std::vector<std::string> experts;
  for (const auto& [name, module] : modules_) {
    if (!module.a || !module.b) throw Error("{}: of {} there is but one factor", weights_->path(), name);
    if (name.ends_with(kExperts)) experts.push_back(name);
  }
  for (const std::string& name : experts) name_stacks(name);
}

// A module of experts has two parameters, each perhaps with an adapter around it: the second one's is around the
// first one's.
void PeftFolder::name_stacks(const std::string& experts) {
  const std::string inner = experts + std::string(kInner);
  const auto rename = [&](const std::string& from, std::string_view parameter) {
    auto module = modules_.extract(from);
    module.mapped().is_stack = true;
    module.key() = experts + std::string(parameter);
    modules_.insert(std::move(module));
  };
  bool has_gate_up = false, has_down = false;
  if (const JsonView parameters = json_.root()["target_parameters"]; parameters.is_array())
    for (int64_t i = 0; i < parameters.size(); ++i) {
      const std::string name = "." + parameters.at(i).string();
      has_gate_up |= name.ends_with(kGateUp), has_down |= name.ends_with(kDown);
    }
  const bool has_inner = modules_.contains(inner);
  if (has_inner ? !(has_gate_up && has_down) : has_gate_up == has_down)
    throw Error("{}: target_parameters does not tell which parameters of {} the adapters there stand beside", source_,
                experts);
  if (has_inner) rename(inner, kGateUp);
  rename(experts, has_down ? kDown : kGateUp);
}

// A pattern is the end of a module's name; PEFT's own rule.
std::vector<PeftFolder::Pattern> PeftFolder::patterns_of(const char* key) const {
  std::vector<Pattern> all;
  const JsonView patterns = json_.root()[key];
  if (!patterns.is_object()) return all;
  for (const std::string& one : patterns.keys())
    all.push_back({Regex(fmt::format("^(?:.*\\.)?(?:{})$", one), fmt::format("{}, {}", source_, key)),
                   patterns.at(one).number()});
  return all;
}

// PEFT takes the first pattern of the file, whose order is not kept here.
double PeftFolder::number_of(const std::vector<Pattern>& patterns, const std::string& module,
                             double otherwise) const {
  std::optional<double> found;
  for (const Pattern& pattern : patterns) {
    bool is_its = false;
    RegexMatcher(pattern.modules).for_each_match(module, [&](size_t begin, size_t end) {
      is_its |= begin == 0 && end == module.size();
    });
    if (!is_its) continue;
    if (found && *found != pattern.number)
      throw Error("{}: two patterns say {} and {} of {}: leave one", source_, *found, pattern.number, module);
    found = pattern.number;
  }
  return found.value_or(otherwise);
}

int64_t PeftFolder::rank_of(const std::string& module) const {
  const double all = double(json_.root().at("r").integer(1, kMostLoraRank));
  const double rank = number_of(ranks_, module, all);
  if (!(rank >= 1 && rank <= double(kMostLoraRank)) || rank != std::floor(rank))
    throw Error("{}: rank_pattern says {} of {}: weft reads ranks from 1 to {}", source_, rank, module,
                kMostLoraRank);
  return int64_t(rank);
}

float PeftFolder::scale_of(const std::string& module) const {
  constexpr double kOtherwise = 8;
  const JsonView json = json_.root();
  const double alpha = number_of(alphas_, module, json.number_or("lora_alpha", kOtherwise));
  const auto rank = double(rank_of(module));
  return float(alpha / (json.boolean_or("use_rslora", false) ? std::sqrt(rank) : rank));
}

LoraConfig PeftFolder::config(const ModelConfig& base) const {
  const JsonView json = json_.root();
  LoraConfig lora{.rank = json.at("r").integer(1, kMostLoraRank),
                  .dropout = float(json.number_or("lora_dropout", 0)),
                  .is_dora = json.boolean_or("use_dora", false)};
  const float scale = scale_of("");
  for (const auto& [name, module] : modules_) {
    const LoraTargets beside = module.is_stack ? targets_of_stack(name) : targets_beside(name, base);
    if (beside == 0)
      throw Error(
          "{}: there are adapters beside {}, and weft knows those of projections of attention (q_proj, qkv_proj, "
          "o_proj ...), of layers with states (in_proj_qkv, out_proj ...) and of feed-forward parts (gate_proj, "
          "down_proj ...)",
          weights_->path(), name);
    lora.targets |= beside;
    lora.rank = std::max(lora.rank, rank_of(name));
  }
  lora.alpha = scale * float(lora.rank);
  return lora;
}

bool PeftFolder::leaves_layers_out() const {
  constexpr const char* kLayers = "layers_to_transform";
  const JsonView json = json_.root();
  return json.has(kLayers) && !is_empty(json.at(kLayers));
}

// Rows of factors that are narrower than the widest end in zeros, and what they give is scaled as the others. Where
// some layers have adapters, zeros stand for those of the others.
class PeftFolder::Tensors final : public StoredTensors {
 public:
  Tensors(PeftFolder folder, const LoraConfig& lora, std::span<const ParamNames> base)
      : folder_(std::move(folder)), rank_(lora.rank), scale_(lora.scale()) {
    std::set<std::string, std::less<>> stored;
    for (const ParamNames& names : base) stored.insert(names.stored.begin(), names.stored.end());
    for (const auto& [name, module] : folder_.modules_) {
      if (module.is_stack) continue;
      const std::string in_files = name_in_files(name);
      add_module(name, stored.contains(in_files + ".weight") ? in_files : name, module);
    }
    for (const ParamNames& names : base) {
      add_stack(names, lora);
      if (folder_.leaves_layers_out()) add_left_out(names, lora);
    }
    if (const StoredInfo* const score = folder_.score_)
      add(score->name, score->dims, {Made::Kind::as_it_is, score, 0});
    std::vector<StoredInfo> all;
    for (const auto& [name, made] : made_) all.push_back(made.info);
    set_all(std::move(all));
  }
  const std::string& path() const override { return folder_.weights_->path(); }

  std::optional<Bytes> bytes(const StoredInfo& info) const override {
    const Made& made = made_.at(info.name);
    return made.kind == Made::Kind::as_it_is ? folder_.weights_->bytes(*made.from) : std::nullopt;
  }
  void read(const StoredInfo& info, int64_t first, int64_t stride, std::span<float> out) const override {
    const Made& made = made_.at(info.name);
    if (made.kind == Made::Kind::zeros) return void(std::ranges::fill(out, 0.0f));
    if (made.kind == Made::Kind::as_it_is) return folder_.weights_->read(*made.from, first, stride, out);
    const int64_t width = info.dims.back();
    std::vector<float> row(static_cast<size_t>(width));
    int64_t held = -1;
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t at = first + int64_t(i) * stride;
      if (at / width != held) read_row(made, held = at / width, row);
      out[i] = row[size_t(at % width)];
    }
  }

 private:
  struct Made {
    enum class Kind : uint8_t { zeros, as_it_is, a, b, stack_a, stack_b };
    Kind kind;
    const StoredInfo* from;
    int64_t rank;     // its own
    float scale = 1;  // beside that of all
    int64_t experts = 1;
    // Of stack_b: an expert's outputs among those of the stack, and how many it has.
    int64_t first = 0, step = 1, count = 0;
    StoredInfo info = {};
  };

  void add(const std::string& name, std::vector<int64_t> dims, Made made) {
    made.info = {.name = name, .dtype_name = "F32", .dims = std::move(dims), .dtype = DType::f32};
    if (made.from) made.info.dtype_name = made.from->dtype_name, made.info.dtype = made.from->dtype;
    made_.emplace(name, std::move(made));
  }
  void expect(const std::string& module, const StoredInfo& info, const std::vector<int64_t>& dims) const {
    if (info.dims != dims)
      throw Error("{}: tensor {} has another shape than [{}], which {} and the model's configuration need", path(),
                  info.to_text(), fmt::join(dims, ", "), module);
  }
  float scale_of(const std::string& module) const { return folder_.scale_of(module) / scale_; }

  void add_module(const std::string& module, const std::string& name, const Module& m) {
    const int64_t rank = folder_.rank_of(module);
    const auto prefixed = [&](std::string_view suffix) { return fmt::format("{}{}.{}", kPeftPrefix, name, suffix); };
    for (const StoredInfo* factor : {m.a, m.b})
      if (factor->dims.size() != 2) throw Error("{}: tensor {} is no matrix", path(), factor->to_text());
    expect(module, *m.a, {rank, m.a->dims[1]}), expect(module, *m.b, {m.b->dims[0], rank});
    const float scale = scale_of(module);
    const bool stays = rank == rank_ && scale == 1;
    using enum Made::Kind;
    add(prefixed("lora_A.weight"), {rank_, m.a->dims[1]}, {stays ? as_it_is : a, m.a, rank});
    add(prefixed("lora_B.weight"), {m.b->dims[0], rank_}, {stays ? as_it_is : b, m.b, rank, scale});
    if (m.magnitude) add(prefixed("lora_magnitude_vector"), m.magnitude->dims, {as_it_is, m.magnitude, rank});
  }

  void add_zeros(const std::string& name, std::vector<int64_t> dims) {
    if (folder_.json_.root().boolean_or("use_dora", false))
      throw Error("{}: of {} there are no lengths of rows (use_dora): adapt all layers", path(), name);
    if (!made_.contains(name)) add(name, std::move(dims), {Made::Kind::zeros, nullptr, 0});
  }

  // A module that is adapted in other layers.
  void add_left_out(const ParamNames& names, const LoraConfig& lora) {
    constexpr std::string_view kSuffix = ".weight";
    if (names.shape.rank() != 2 || !names.param.ends_with(kSuffix) || !names.stored.front().ends_with(kSuffix))
      return;
    if ((lora.targets & target_of(names.param.substr(0, names.param.rfind('.')))) == 0) return;
    const std::string& stored = names.stored.front();
    const std::string module = fmt::format("{}{}", kPeftPrefix, stored.substr(0, stored.size() - kSuffix.size()));
    if (made_.contains(module + ".lora_A.weight")) return;
    add_zeros(module + ".lora_A.weight", {rank_, names.num_cols()});
    add_zeros(module + ".lora_B.weight", {names.num_stored_rows(), rank_});
  }

  // Beside all experts of a layer, of which `names` is one projection.
  void add_stack(const ParamNames& names, const LoraConfig& lora) {
    const std::string linear = names.param.substr(0, names.param.rfind('.'));
    const size_t end = names.stored.front().find(kExperts);
    if (names.shape.rank() != 3 || !names.param.ends_with(".weight") || end == std::string::npos) return;
    const bool is_down = linear.ends_with(".down"), is_up = linear.ends_with(".up");
    const std::string in_files = names.stored.front().substr(0, end + kExperts.size());
    const int64_t experts = names.shape[0], out = names.shape[1], in = names.shape[2];
    // Gates and ups lie one behind the other, or row by row in turn.
    const bool is_in_turn = names.stored.size() == 1 && !is_down && names.rows(1) - names.rows(0) == 2;
    const int64_t first = !is_up ? 0 : is_in_turn ? 1 : out, step = is_in_turn ? 2 : 1;
    bool is_adapted = false;  // in some layer, as a stack
    for (const auto& [name, m] : folder_.modules_) {
      if (!m.is_stack || name.ends_with(kDown) != is_down) continue;
      is_adapted = true;
      const std::string container = name.substr(0, name.rfind('.'));
      if (container != in_files && name_in_files(container) != in_files) continue;
      const int64_t rank = folder_.rank_of(name);
      expect(name, *m.a, {experts * rank, in}), expect(name, *m.b, {is_down ? out : 2 * out, rank * experts});
      add(linear + ".lora_a", {experts, rank_, in}, {Made::Kind::stack_a, m.a, rank, 1, experts});
      add(linear + ".lora_b", {experts, out, rank_},
          {Made::Kind::stack_b, m.b, rank, scale_of(name), experts, first, step, out});
    }
    if (!is_adapted || made_.contains(linear + ".lora_a") || (lora.targets & target_of(linear)) == 0) return;
    add_zeros(linear + ".lora_a", {experts, rank_, in}), add_zeros(linear + ".lora_b", {experts, out, rank_});
  }

  void read_row(const Made& made, int64_t row, std::span<float> out) const {
    using enum Made::Kind;
    const StoredTensors& weights = *folder_.weights_;
    const auto width = int64_t(out.size());
    const auto own = out.first(size_t(made.kind == b || made.kind == stack_b ? made.rank : width));
    std::ranges::fill(out, 0.0f);
    switch (made.kind) {
      case a:
      case stack_a:
        // Row k of expert e is row e r + k.
        if (row % rank_ < made.rank)
          weights.read(*made.from, (row / rank_ * made.rank + row % rank_) * width, 1, own);
        break;
      case b: weights.read(*made.from, row * made.rank, 1, own); break;
      case stack_b:
        // Column k of expert e is column k E + e.
        weights.read(*made.from,
                     (made.first + row % made.count * made.step) * made.rank * made.experts + row / made.count,
                     made.experts, own);
        break;
      case zeros:
      case as_it_is: break;
    }
    for (float& x : own) x *= made.scale;
  }

  PeftFolder folder_;
  int64_t rank_;
  float scale_;
  std::map<std::string, Made> made_;
};

std::unique_ptr<StoredTensors> PeftFolder::tensors_of(PeftFolder folder, const LoraConfig& lora,
                                                      std::span<const ParamNames> base) {
  return std::make_unique<Tensors>(std::move(folder), lora, base);
}

}  // namespace weft
