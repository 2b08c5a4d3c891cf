// References of schemas: one walk notes what has a name, another one writes pointers in the place of names.
#include "weft/serve/constrain/schema_references.h"

#include <map>
#include <set>

#include "weft/base/error.h"
#include "weft/base/excerpt.h"
#include "weft/base/percent.h"

namespace weft::constrain {
namespace {

class References {
 public:
  explicit References(Schema& root) {
    resources_[""] = "";
    note(root, "", "");
    rewrite(root, "");
  }

 private:
  static bool holds_schemas(const std::string& key) {
    static const std::set<std::string> values = {"const", "enum", "default", "examples", "example"};
    return !values.contains(key);
  }
  static std::string escaped(const std::string& key) {
    std::string text;
    for (const char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return text;
  }
  // An $id names a resource, at its pointer; "#name" in it does what an $anchor does, in older drafts.
  static std::string resource_of(const Schema& schema) {
    for (const char* key : {"$id", "id"}) {
      if (!schema.contains(key) || !schema[key].is_string()) continue;
      const std::string id = schema[key].get<std::string>();
      return id.substr(0, id.find('#'));
    }
    return {};
  }

  // resource: the pointer of the one that `schema` belongs to.
  void note(const Schema& schema, const std::string& pointer, std::string resource) {
    if (schema.is_array()) {
      for (size_t i = 0; i < schema.size(); ++i) note(schema[i], fmt::format("{}/{}", pointer, i), resource);
    }
    if (!schema.is_object()) return;
    if (const std::string id = resource_of(schema); !id.empty()) resources_[id] = resource = pointer;
    if (schema.contains("$anchor") && schema["$anchor"].is_string())
      anchors_[{resource, schema["$anchor"].get<std::string>()}] = pointer;
    for (const auto& [key, value] : schema.items()) {
      if (holds_schemas(key)) note(value, fmt::format("{}/{}", pointer, escaped(key)), resource);
    }
  }

  void rewrite(Schema& schema, std::string resource) const {
    if (schema.is_array()) {
      for (Schema& one : schema) rewrite(one, resource);
    }
    if (!schema.is_object()) return;
    if (const std::string id = resource_of(schema); !id.empty()) resource = resources_.at(id);
    if (schema.contains("$ref") && schema["$ref"].is_string())
      schema["$ref"] = plain(schema["$ref"].get<std::string>(), resource);
    for (const auto& [key, value] : schema.items()) {
      if (holds_schemas(key)) rewrite(value, resource);
    }
  }

  std::string plain(const std::string& reference, std::string resource) const {
    const size_t hash = std::min(reference.find('#'), reference.size());
    const std::string base = reference.substr(0, hash);
    const auto fail = [&](const char* what) { throw UsageError("$ref {}: {}", excerpt(reference, 80), what); };
    const auto decoded = percent_decoded(std::string_view(reference).substr(std::min(hash + 1, reference.size())));
    if (!decoded) fail("behind a % two hexadecimal digits tell a byte; write %25 for a % itself");
    const std::string& fragment = *decoded;
    if (!base.empty()) {
      const auto known = resources_.find(base);
      if (known == resources_.end()) fail("only what is within the schema is supported: #/..., an $anchor or an $id");
      resource = known->second;
    }
    if (fragment.empty() || fragment[0] == '/') return fmt::format("#{}{}", resource, fragment);
    const auto anchor = anchors_.find({resource, fragment});
    if (anchor == anchors_.end()) fail("there is nothing");
    return fmt::format("#{}", anchor->second);
  }

  std::map<std::string, std::string> resources_;                        // by $id
  std::map<std::pair<std::string, std::string>, std::string> anchors_;  // by resource and name
};

}  // namespace

Schema with_plain_references(Schema root) {
  References{root};
  return root;
}

}  // namespace weft::constrain
