// Translation: running a table over a configuration.
#include "weft/plan/imports/translation.h"

#include <cmath>

#include "weft/base/excerpt.h"
#include "weft/base/nearest.h"
#include "weft/models/model_config.h"
#include "weft/train/recipe.h"

namespace weft::plan {
namespace {

// Splits off the first part of a dotted key.
std::string_view next_part(std::string_view& key) {
  const size_t dot = key.find('.');
  const std::string_view part = key.substr(0, dot);
  key = dot == key.npos ? std::string_view() : key.substr(dot + 1);
  return part;
}

bool matches(std::string_view pattern, std::string_view key) {
  while (!pattern.empty() && !key.empty()) {
    const std::string_view expected = next_part(pattern);
    if (expected == "**") return true;
    const std::string_view part = next_part(key);
    const bool is_prefix = expected.ends_with('*');
    if (is_prefix ? !part.starts_with(expected.substr(0, expected.size() - 1)) : part != expected) return false;
  }
  return key.empty() && (pattern.empty() || pattern == "**");
}

// A feature that is switched off asks for nothing.
bool is_off(const ConfigEntry& entry) {
  return flag_of(entry) == false || entry.text == "no" || entry.text == "none" || entry.text == "None" ||
         entry.text == "[]" || entry.text.empty();
}

std::string as_toml(const Toml::Value& value) {
  const bool is_text = std::holds_alternative<std::string>(value);
  return is_text ? fmt::format("\"{}\"", excerpt(shown(value))) : shown(value);
}

std::string as_is(std::string_view key) { return std::string(key); }

}  // namespace

int64_t whole_near(double value) {
  constexpr double kMost = 1 << 30;
  return std::isnan(value) ? 0 : int64_t(std::clamp(value, -kMost, kMost));
}

Toml::Value pair_of(double first, double second) {
  std::vector<Toml::Scalar> both;
  both.emplace_back(first), both.emplace_back(second);
  return both;
}

const ConfigEntry* Translation::find(std::string_view key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : found->second;
}
bool Translation::is_given(std::string_view key) const {
  return std::ranges::any_of(config_, [&](const ConfigEntry& entry) { return normal_(entry.key) == key; });
}
std::optional<double> Translation::number(std::string_view key) const {
  const ConfigEntry* entry = find(key);
  return entry ? plan::number_of(*entry) : std::nullopt;
}
std::optional<std::string> Translation::text(std::string_view key) const {
  const ConfigEntry* entry = find(key);
  return entry ? plan::text_of(*entry) : std::nullopt;
}
bool Translation::is_on(std::string_view key) const {
  const ConfigEntry* entry = find(key);
  return entry && plan::flag_of(*entry) == true;
}

int64_t Translation::whole_of(const ConfigEntry& entry) const {
  const double value = number_of(entry);
  constexpr double kMost = double(int64_t(1) << 31);
  if (value != std::floor(value) || std::abs(value) > kMost) reject(entry, "a whole number");
  return int64_t(value);
}
double Translation::number_of(const ConfigEntry& entry) const {
  const auto value = plan::number_of(entry);
  if (!value || !std::isfinite(*value)) reject(entry, "a number");
  return *value;
}
bool Translation::flag_of(const ConfigEntry& entry) const {
  const auto value = plan::flag_of(entry);
  if (!value) reject(entry, "true or false");
  return *value;
}
std::string Translation::text_of(const ConfigEntry& entry) const {
  const auto value = plan::text_of(entry);
  if (!value) reject(entry, "a word");
  return *value;
}
void Translation::reject(const ConfigEntry& entry, std::string_view what_to_write) const {
  const std::string place = entry.line > 0 ? fmt::format("{}, line {}", source_, entry.line) : source_;
  throw UsageError("{}: {} = {} must be {}", place, entry.key, excerpt(entry.text), what_to_write);
}

void Translation::put(std::string_view recipe_key, Toml::Value value) {
  current_.fate = Fate::taken;
  add(fmt::format("{} = {}", recipe_key, as_toml(value)));
  recipe_.put(recipe_key, std::move(value));
}
void Translation::say(Fate fate, std::string_view why) { current_.fate = fate, current_.says = why; }
void Translation::add(std::string_view more) {
  if (!current_.says.empty()) current_.says += "; ";
  current_.says += more;
}

void Translation::imply(std::string_view recipe_key, Toml::Value value, std::string_view why) {
  if (recipe_.has(recipe_key)) return;
  import_.implied.push_back({std::string(recipe_key), as_toml(value), std::string(why)});
  recipe_.put(recipe_key, std::move(value));
}
void Translation::open(std::string_view recipe_key, std::string_view why) {
  for (OpenKey& known : import_.open) {
    if (known.key != recipe_key) continue;
    known.says += fmt::format("; {}", why);
    return;
  }
  import_.open.push_back({std::string(recipe_key), std::string(why)});
}
std::string Translation::word_in_recipe(std::string_view recipe_key) {
  return recipe_.has(recipe_key) ? recipe_.get<std::string>(recipe_key, "") : "";
}
int64_t Translation::whole_in_recipe(std::string_view recipe_key, int64_t otherwise) {
  if (!recipe_.has(recipe_key)) return otherwise;
  return recipe_.get<int64_t>(recipe_key, otherwise);
}

void Translation::run(const Format& format) {
  normal_ = format.normal ? format.normal : as_is;
  // Keys that are asked for come first, in this order.
  for (const char* key : {"model.preset",      "model.path",
                          "model.family",      "model.layers",
                          "model.hidden",      "model.heads",
                          "model.kv_heads",    "model.ffn",
                          "model.vocab",       "data.train",
                          "data.tokenizer",    "train.steps",
                          "train.seq_len",     "train.global_batch",
                          "train.micro_batch", "optimizer.name",
                          "optimizer.lr",      "mesh.dp",
                          "mesh.tp",           "mesh.pp",
                          "mesh.cp",           "mesh.ep",
                          "mesh.zero"})
    recipe_.allow(key);
  for (const ConfigEntry& entry : config_)
    if (entry.value && entry.is_resolved && entry.text != "auto") by_key_.emplace(normal_(entry.key), &entry);
  for (const ConfigEntry& entry : config_) import_.keys.push_back(translate(entry, format.rules));
}

ImportedKey Translation::translate(const ConfigEntry& entry, std::span<const Rule> rules) {
  current_ = {.key = excerpt(entry.key), .value = excerpt(entry.text, 60), .line = entry.line};
  const std::string key = normal_(entry.key);
  const auto rule = std::ranges::find_if(rules, [&](const Rule& r) { return matches(r.pattern, key); });
  if (rule == rules.end()) {
    std::vector<std::string> known;
    for (const Rule& r : rules)
      if (r.pattern.find('*') == r.pattern.npos) known.emplace_back(r.pattern);
    const std::string near = nearest(key, known), below = key + ".";
    if (!entry.value && std::ranges::any_of(rules, [&](const Rule& r) { return r.pattern.starts_with(below); }))
      say(Fate::same, "not set");
    else if (entry.key.starts_with('$'))
      say(Fate::open, "a variable that the file does not assign: arguments in it are not seen");
    else
      say(Fate::unknown, near.empty()
                             ? "none of the keys of its program that weft knows; nothing in the recipe comes of it"
                             : fmt::format("did you mean {}?", near));
    return std::move(current_);
  }
  const std::string hint = rule->text.empty() ? "write its value into the file" : fmt::format("write {}", rule->text);
  const size_t dot = entry.key.rfind('.');
  const std::string enabled = dot == entry.key.npos ? "" : entry.key.substr(0, dot) + ".enabled";
  const ConfigEntry* section = enabled.empty() || entry.key == enabled ? nullptr : find(enabled);
  if (section && plan::flag_of(*section) == false) {
    say(Fate::not_needed, "its section is switched off");
  } else if (!entry.value) {
    say(Fate::same, "not set");
  } else if (entry.text == "auto" && rule->fate == Fate::taken) {
    say(Fate::open, fmt::format("another file sets it: {}", hint));
  } else if (!entry.is_resolved && rule->fate == Fate::taken) {
    say(Fate::open, fmt::format("the file does not assign the variable: {}", hint));
    if (!rule->text.empty())
      open(rule->text, fmt::format("{} {} stands in the file", entry.key, excerpt(entry.text, 60)));
  } else if (rule->take && entry.text != "auto") {
    rule->take(*this, entry, rule->text);
  } else if (rule->fate == Fate::no_counterpart && is_off(entry)) {
    say(Fate::same, "off");
  } else {
    say(rule->fate, rule->text);
  }
  if (entry.times > 1) add(fmt::format("given {} times, the last counts", entry.times));
  return std::move(current_);
}

void Translation::settle_data_parallel(std::optional<int64_t> num_devices) {
  if (options_.num_devices > 0) num_devices = options_.num_devices;
  const int64_t tp = whole_in_recipe("mesh.tp", 1), pp = whole_in_recipe("mesh.pp", 1),
                cp = whole_in_recipe("mesh.cp", 1), dp = whole_in_recipe("mesh.dp", 1);
  constexpr double kMost = 1 << 20;
  if (std::min({tp, pp, cp, dp}) < 1 || double(tp) * double(pp) * double(cp) * double(dp) > kMost)
    throw UsageError("{}: dp {} x tp {} x pp {} x cp {} is no number of devices", source_, dp, tp, pp, cp);
  const int64_t inner = tp * pp * cp;
  const int64_t micro = whole_in_recipe("train.micro_batch", 0), rows = whole_in_recipe("train.global_batch", 0),
                accumulation = whole_in_recipe("train.accumulation", 0);
  const bool has_batches = micro > 0 && rows > 0 && accumulation > 0 && micro <= rows && accumulation <= rows;
  if (num_devices && *num_devices > 0 && *num_devices % inner != 0)
    throw UsageError("{}: {} devices do not divide by tp {} x pp {} x cp {}", source_, *num_devices, tp, pp, cp);
  if (num_devices && *num_devices > 0) {
    imply("mesh.dp", *num_devices / inner, fmt::format("{} devices / (tp x pp x cp)", *num_devices));
  } else if (has_batches && rows % (micro * accumulation) == 0) {
    imply("mesh.dp", rows / (micro * accumulation), "global batch / (micro-batch x accumulation)");
  } else if (!recipe_.has("mesh.dp")) {
    const int64_t ep = whole_in_recipe("mesh.ep", 1), least = ep > 1 && ep % cp == 0 ? ep / cp : 1;
    if (least > 1) imply("mesh.dp", least, "the least that mesh.ep allows");
    open("mesh.dp",
         fmt::format("devices / (tp x pp x cp), {} as it stands; --cluster says how many devices there are", least));
  }
  if (rows == 0 && micro == 0) {
    imply("train.micro_batch", int64_t(1), "the file says no batch");
    open("train.micro_batch", "rows of a micro-batch on a device, 1 as it stands; or train.global_batch");
  }
}

Import Translation::take(ImportKind kind) && {
  import_.kind = kind;
  const bool has_model = recipe_.has_section("model");
  if (!options_.model.empty()) {
    if (recipe_.has("model.hidden"))
      throw UsageError("{}: the file describes a model itself: leave {} out", source_, options_.model);
    const std::vector<std::string> presets = preset_names();
    const bool is_preset = std::ranges::find(presets, options_.model) != presets.end();
    recipe_.put(is_preset ? "model.preset" : "model.path", options_.model);
    std::erase_if(import_.open, [](const OpenKey& k) { return k.key.starts_with("model."); });
  } else if (!recipe_.has("model.hidden")) {
    if (!has_model) recipe_.put("model.family", std::string("llama"));
    open("model", has_model ? "the file has a part of the shape: write preset, or the rest"
                            : "the file describes none: write preset, path or the shape");
  } else if (!recipe_.has("model.vocab")) {
    open("model.vocab", "the tokenizer's size where it is left out");
  }
  recipe_.put("data.train", options_.data);
  open("data.train", fmt::format("text, conversations or token files; \"{}\" stands there", options_.data));

  import_.recipe = fmt::format("# From {} ({}). Still to be looked at:\n", excerpt(source_), title_of(kind));
  for (const OpenKey& key : import_.open)
    import_.recipe += fmt::format("#   {}: {}\n", excerpt(key.key), excerpt(key.says));
  import_.recipe += recipe_.to_text();
  try {
    Toml again = Toml::parse(import_.recipe, "the recipe");
    Recipe read = read_recipe(again);
    if (read.model.hidden > 0 && read.model.vocab > 0) complete(read.model);
  } catch (const Error& e) {
    import_.refusal = e.what();
  }
  return std::move(import_);
}

void take_whole(Translation& t, const ConfigEntry& entry, std::string_view target) {
  t.put(target, t.whole_of(entry));
}
void take_number(Translation& t, const ConfigEntry& entry, std::string_view target) {
  t.put(target, t.number_of(entry));
}
void take_flag(Translation& t, const ConfigEntry& entry, std::string_view target) { t.put(target, t.flag_of(entry)); }
void take_text(Translation& t, const ConfigEntry& entry, std::string_view target) { t.put(target, t.text_of(entry)); }

void take_word(Translation& t, const ConfigEntry& entry, std::string_view target, const Words& words) {
  const std::string word = t.text_of(entry);
  std::string known;
  for (const Word& w : words) {
    if (w.theirs.empty()) continue;
    if (w.theirs == word) return t.put(target, std::string(w.ours));
    known += fmt::format("{}{}", known.empty() ? "" : ", ", w.ours);
  }
  t.say(Fate::no_counterpart, fmt::format("write {} = one of {}", target, known));
}

void take_bf16_gradients(Translation& t, std::string_view target, bool is_bf16) {
  if (!is_bf16)
    return t.say(Fate::no_counterpart, "beside other products than those of bf16 gradients are summed in fp32");
  t.put(target, std::string("bf16"));
  t.add("those of layers' products; of embeddings, heads, norms and biases they stay fp32");
}

void take_beta(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const bool is_first = entry.key.ends_with('1');
  std::string other = t.normal(entry.key);
  other.back() = is_first ? '2' : '1';
  const double own = t.number_of(entry), beside = t.number_or(other, is_first ? 0.999 : 0.9);
  t.put(target, pair_of(is_first ? own : beside, is_first ? beside : own));
}

}  // namespace weft::plan
