// JSON schemas: objects, whose names are shared out among those who speak of them, and arrays.
#include <algorithm>
#include <set>

#include "weft/base/error.h"
#include "weft/serve/constrain/schema_compiler.h"

namespace weft::constrain {
namespace {

constexpr size_t kMostNames = 64;  // kinds of them, of one object

}  // namespace

Element SchemaCompiler::in_order(const std::vector<Member>& members, const Counts& counts,
                                 const std::function<Element(int64_t n)>& end) {
  // From the last member to the first; behind[n]: what may follow when n were there, or at least n where it is last.
  const int64_t top = std::max<int64_t>({1, counts.min, counts.max});
  const auto highest = [&](size_t i) { return std::min(top, int64_t(i)); };
  std::vector<Element> behind;
  for (int64_t n = 0; n <= highest(members.size()); ++n) behind.push_back(end(n));
  for (size_t i = members.size(); i-- > 0;) {
    std::vector<Element> here;
    for (int64_t n = 0; n <= highest(i); ++n) {
      std::vector<Sequence> ways;
      const Sequence between = n > 0 ? json_.punctuation(',') : Sequence();
      if (counts.max == kUnbounded || n < counts.max)
        ways.push_back(between + members[i].text + Sequence{behind[size_t(std::min(n + 1, top))]});
      if (!members[i].is_required) ways.push_back({behind[size_t(n)]});
      here.push_back(builder_.one_of(ways));
    }
    behind = std::move(here);
  }
  return behind.front();
}

// The texts that a schema allows as names.
TextAutomaton SchemaCompiler::names_of(const Schema& given, const std::string& path) {
  const Schema schema = flattened(given, path);
  const TextAutomaton none = TextAutomaton::all() - TextAutomaton::all();
  if (schema.is_boolean()) return schema.get<bool>() ? TextAutomaton::all() : none;
  if (!schema.is_object()) fail(path, "a schema is an object, true or false");
  for (const auto& [key, value] : schema.items()) {
    static const std::set<std::string> supported = {"type",  "pattern", "minLength", "maxLength",
                                                    "const", "enum",    "not"};
    if (!supported.contains(key) && !is_annotation(key)) fail(path, fmt::format("{} of names is not supported", key));
  }
  const std::vector<std::string> allowed = types({{"type", schema.value("type", Schema("string"))}}, path);
  if (std::find(allowed.begin(), allowed.end(), "string") == allowed.end()) return none;
  if (!schema.contains("const") && !schema.contains("enum")) return texts_of(schema, path);
  std::vector<std::string> words;
  for (const Schema& value : values_of(schema, path)) {
    if (value.is_string()) words.push_back(value.get<std::string>());
  }
  if (words.empty()) return none;
  return TextAutomaton::of([&](GrammarBuilder& builder) { return builder.one_of_texts(words); });
}

// By which of the patterns they match.
std::vector<SchemaCompiler::Names> SchemaCompiler::split(TextAutomaton names, const Schema& patterns,
                                                         const std::string& path) {
  std::vector<Names> kinds{{.names = std::move(names)}};
  for (const auto& [pattern, schema] : patterns.items()) {
    const TextAutomaton matching = TextAutomaton::of_regex(pattern);
    std::vector<Names> parted;
    for (const Names& kind : kinds) {
      count_automaton();
      Names with{.names = kind.names & matching, .all_of = kind.all_of};
      with.all_of.push_back(schema);
      if (!with.names.is_empty()) parted.push_back(std::move(with));
      Names without{.names = kind.names - matching, .all_of = kind.all_of};
      if (!without.names.is_empty()) parted.push_back(std::move(without));
    }
    kinds = std::move(parted);
    if (kinds.size() > kMostNames) fail(path, fmt::format("there are over {} kinds of names", kMostNames));
  }
  return kinds;
}

// A member with a name that is not known: of the patterns that it matches, or `more`.
Element SchemaCompiler::others(const Schema& schema, const std::vector<Declared>& declared, const Schema& more,
                               const std::string& path) {
  const Schema no_patterns = Schema::object();
  const Schema& patterns = schema.contains("patternProperties") ? schema["patternProperties"] : no_patterns;
  const auto member = [&](Element key, const Schema& one, const char* keyword) {
    return Sequence{key, json_.space()} + json_.punctuation(':') +
           Sequence{compile(one, fmt::format("{}/{}", path, keyword)), json_.space()};
  };
  if (more == false && patterns.empty()) return builder_.one_of({});
  if (declared.empty() && patterns.empty() && !schema.contains("propertyNames"))
    return builder_.one_of({member(json_.name(), more, "additionalProperties")});
  TextAutomaton names = schema.contains("propertyNames")
                            ? names_of(schema["propertyNames"], fmt::format("{}/propertyNames", path))
                            : TextAutomaton::all();
  if (!declared.empty()) {
    std::vector<std::string> known;
    for (const Declared& d : declared) known.push_back(d.name);
    names = names - TextAutomaton::of([&](GrammarBuilder& builder) { return builder.one_of_texts(known); });
  }
  std::vector<Sequence> ways;
  for (const Names& kind : split(std::move(names), patterns, path)) {
    const bool is_free = kind.all_of.empty();
    if (is_free && more == false) continue;
    const Element key = json_.name_of(kind.names);
    const Schema all = kind.all_of.size() == 1 ? kind.all_of.front() : Schema({{"allOf", kind.all_of}});
    ways.push_back(member(key, is_free ? more : all, is_free ? "additionalProperties" : "patternProperties"));
  }
  return builder_.one_of(ways);
}

// Those of `properties`, then those that are only required.
std::vector<SchemaCompiler::Declared> SchemaCompiler::declared_in(const Schema& schema, const Schema& properties,
                                                                  const std::string& path) {
  std::vector<Declared> all;
  for (const auto& [name, one] : properties.items()) all.push_back({name, one});
  const Schema no_names = Schema::array();
  const Schema& required = schema.contains("required") ? schema["required"] : no_names;
  if (!required.is_array()) fail(path, "required is a list of names");
  for (const Schema& name : required) {
    if (!name.is_string()) fail(path, "required is a list of names");
    auto known = std::ranges::find(all, name.get<std::string>(), &Declared::name);
    if (known == all.end()) known = all.insert(known, {name.get<std::string>(), Schema()});
    known->is_required = true;
  }
  return all;
}

// Their values are as they say themselves and as the patterns say that their names match; `more` where nobody says
// any.
std::vector<SchemaCompiler::Member> SchemaCompiler::members(const std::vector<Declared>& declared,
                                                            const Schema& schema, const Schema& patterns,
                                                            const Schema& more, const std::string& path) {
  if (declared.empty()) return {};
  std::optional<TextAutomaton> names;
  if (schema.contains("propertyNames")) names = names_of(schema["propertyNames"], path + "/propertyNames");
  std::vector<std::pair<TextAutomaton, Schema>> matching;
  for (const auto& [pattern, one] : patterns.items()) matching.emplace_back(TextAutomaton::of_regex(pattern), one);
  std::vector<Member> all_members;
  for (const Declared& d : declared) {
    Schema all = Schema::array();
    if (!d.schema.is_null()) all.push_back(d.schema);
    for (const auto& [texts, also] : matching) {
      if (texts.contains(d.name)) all.push_back(also);
    }
    if (all.empty()) all.push_back(schema.contains("additionalProperties") ? more : Schema(true));
    if (names && !names->contains(d.name)) all = Schema::array({false});
    const Schema whole = all.size() == 1 ? all.front() : Schema({{"allOf", all}});
    all_members.push_back({json_.name_of(std::string_view(d.name)) + Sequence{json_.space()} +
                               json_.punctuation(':') +
                               Sequence{compile(whole, path + "/properties/" + d.name), json_.space()},
                           d.is_required});
  }
  return all_members;
}

// What may stand inside: the members, then others, as many as the counts allow.
Element SchemaCompiler::members_and_others(const std::vector<Member>& members, Element other_member,
                                           const Counts& limits) {
  const Sequence other{other_member}, next = json_.punctuation(',') + other;
  std::vector<Element> rest;  // when n were there: as many as there may still be
  const auto behind = [&](int64_t n) -> Element {
    if (limits.max == kUnbounded) {
      if (rest.empty()) rest.push_back(builder_.repeat(next, 0, kUnbounded));
      return rest.front();
    }
    if (rest.empty()) {
      rest.assign(size_t(limits.max) + 1, builder_.one_of({Sequence()}));
      for (size_t i = rest.size() - 1; i-- > 0;) rest[i] = builder_.optional(next + Sequence{rest[i + 1]});
    }
    return rest[size_t(n)];
  };
  return in_order(members, limits, [&](int64_t n) {
    std::vector<Sequence> ways;
    if (n >= limits.min) ways.push_back({});
    if (n + 1 >= limits.min && limits.allows(n + 1)) ways.push_back((n > 0 ? next : other) + Sequence{behind(n + 1)});
    return builder_.one_of(ways);
  });
}

Element SchemaCompiler::object(const Schema& schema, const std::string& path) {
  const auto map_of = [&](const char* keyword) {
    const Schema found = schema.contains(keyword) ? schema[keyword] : Schema::object();
    if (!found.is_object()) fail(path, fmt::format("{} is an object", keyword));
    return found;
  };
  const Schema properties = map_of("properties"), patterns = map_of("patternProperties");
  const Counts limits = counts(schema, "minProperties", "maxProperties", path);
  if (!limits.allows(limits.min)) return builder_.one_of({});
  const bool is_open = patterns.empty() && std::all_of(properties.begin(), properties.end(),
                                                       [](const Schema& one) { return one == false; });
  const Schema more = schema.contains("additionalProperties") ? schema["additionalProperties"] : Schema(is_open);
  const std::vector<Declared> declared = declared_in(schema, properties, path);
  if (declared.empty() && patterns.empty() && more == true && limits.min == 0 && limits.max == kUnbounded &&
      !schema.contains("propertyNames"))
    return json_.object();

  const std::vector<Member> known = members(declared, schema, patterns, more, path);
  const Element other = others(schema, declared, more, path);
  // Names that are not declared may come twice, so that they count once at most where there must be some.
  if (limits.min > int64_t(known.size()) + 1 && (more != false || !patterns.empty()))
    fail(path, fmt::format("minProperties over {} is not supported: names that are not declared may come twice",
                           known.size() + 1));
  const Element inside = members_and_others(known, other, limits);
  return builder_.one_of({json_.punctuation('{') + Sequence{inside} + builder_.literal("}")});
}

// Of values that must differ: each once at most, in the order of the enum.
Element SchemaCompiler::different_values(const Schema& given, const Counts& limits, const std::string& path) {
  const Schema items = flattened(given, path);
  if (!items.is_object() || !(items.contains("enum") || items.contains("const")))
    fail(path, "uniqueItems is supported for items of an enum only");
  std::vector<Member> members;
  std::vector<Schema> seen;
  for (const Schema& value : values_of(items, path)) {
    if (std::find(seen.begin(), seen.end(), value) != seen.end()) continue;
    seen.push_back(value);
    members.push_back({written(value) + Sequence{json_.space()}, false});
  }
  return in_order(members, limits, [&](int64_t n) {
    return builder_.one_of(n >= limits.min ? std::vector<Sequence>{{}} : std::vector<Sequence>());
  });
}

// Some of the items are valid under `contains` too.
Element SchemaCompiler::containing(const Schema& schema, const Schema& items, const Counts& limits,
                                   const std::string& path) {
  const int64_t least = count(schema, "minContains", 1, path);
  if (least > builder_.limits().repeats) fail(path, fmt::format("minContains counts to {}", least));
  const Sequence any{compile(items, path + "/items"), json_.space()};
  const Schema both = {{"allOf", Schema::array({items, schema["contains"]})}};
  const Sequence one{compile(both, path + "/contains"), json_.space()};
  // rules[n][c]: what follows n items, of which c are such; the last of each stands for more, too.
  const int64_t top = std::max<int64_t>({1, limits.min, limits.max});
  std::vector<std::vector<RuleId>> rules(static_cast<size_t>(top + 1));
  for (std::vector<RuleId>& row : rules) {
    for (int64_t c = 0; c <= least; ++c) row.push_back(builder_.add_rule());
  }
  for (int64_t n = 0; n <= top; ++n) {
    const Sequence between = n > 0 ? json_.punctuation(',') : Sequence();
    const std::vector<RuleId>& next = rules[size_t(std::min(n + 1, top))];
    for (int64_t c = 0; c <= least; ++c) {
      const RuleId rule = rules[size_t(n)][size_t(c)];
      if (n >= limits.min && c >= least) builder_.add_alternative(rule, {});
      if (limits.max != kUnbounded && n >= limits.max) continue;
      builder_.add_alternative(rule, between + any + Sequence{GrammarBuilder::rule(next[size_t(c)])});
      if (c < least)
        builder_.add_alternative(rule, between + one + Sequence{GrammarBuilder::rule(next[size_t(c + 1)])});
    }
  }
  return GrammarBuilder::rule(rules[0][0]);
}

Element SchemaCompiler::array(const Schema& schema, const std::string& path) {
  const Schema none = Schema::array();
  const Schema& prefix = schema.contains("prefixItems") ? schema["prefixItems"] : none;
  if (!prefix.is_array()) fail(path, "prefixItems is a list");
  const Counts limits = counts(schema, "minItems", "maxItems", path);
  if (!limits.allows(limits.min)) return builder_.one_of({});
  const auto [min, max] = limits;
  const int64_t num_prefix = int64_t(prefix.size());
  const Schema items = schema.contains("items") ? schema["items"] : Schema(num_prefix == 0 || min > num_prefix);
  const bool must_contain = schema.contains("contains") && schema.value("minContains", Schema(1)) != 0;
  const bool must_differ = schema.value("uniqueItems", Schema(false)) != false && (max == kUnbounded || max > 1);
  const auto list = [&](Element inside) {
    return builder_.one_of({json_.punctuation('[') + Sequence{inside} + builder_.literal("]")});
  };
  if ((must_contain || must_differ) && (num_prefix > 0 || must_contain == must_differ))
    fail(path, "contains and uniqueItems are not supported beside each other or prefixItems");
  if (must_differ) return list(different_values(items, limits, path));
  if (must_contain) return list(containing(schema, items, limits, path));
  if (items == true && num_prefix == 0 && min == 0 && max == kUnbounded) return json_.array();

  // From the last item to the first; `rest` is what may follow when i items were there.
  const auto item = [&](const Schema& one, const std::string& place) {
    return Sequence{compile(one, place), json_.space()};
  };
  const bool has_items = items != false && (max == kUnbounded || max > num_prefix);
  Element rest = builder_.one_of({Sequence()}), all = rest;
  if (has_items || min > num_prefix) {
    const Sequence one = item(items, path + "/items");
    const int64_t least = std::max<int64_t>(min - num_prefix, 0);
    const int64_t highest = max == kUnbounded ? kUnbounded : max - num_prefix;
    rest = builder_.repeat(json_.punctuation(',') + one, least, highest);
    const auto less = [](int64_t n) { return n > 0 ? n - 1 : n; };
    const Element others =
        builder_.repeat(json_.punctuation(',') + one, less(least), highest == kUnbounded ? highest : highest - 1);
    all = builder_.one_of({one + Sequence{others}});
    if (least == 0) all = builder_.optional({all});
  }
  for (int64_t i = num_prefix; i-- > 0;) {
    if (max != kUnbounded && i >= max) continue;
    const Sequence one = item(prefix[size_t(i)], fmt::format("{}/prefixItems/{}", path, i)) + Sequence{rest};
    rest = builder_.one_of({json_.punctuation(',') + one});
    all = builder_.one_of({one});
    if (i < min) continue;
    rest = builder_.optional({rest});
    all = builder_.optional({all});
  }
  return list(all);
}

}  // namespace weft::constrain
