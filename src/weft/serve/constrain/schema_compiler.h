// SchemaCompiler: what json_schema.cpp and schema_objects.cpp share; private to them.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/constrain/json_text.h"
#include "weft/serve/constrain/number_text.h"
#include "weft/serve/constrain/schema_merge.h"
#include "weft/serve/constrain/schema_negate.h"
#include "weft/serve/constrain/text_automaton.h"

namespace weft::constrain {

// How the arguments of a call are written that are no JSON object: open NAME middle VALUE close, one behind the
// other.
struct TaggedForm {
  Sequence open, middle, close;
  std::string stop = {};      // no value that is a text has it
  Sequence json_middle = {};  // before values that are no texts, where that differs
  Sequence separator = {};    // between arguments
  bool is_python = false;     // texts are quoted too, and words are Python's
  bool is_marked = false;     // texts are marked too, and names of members bare
};

// References become rules, so that schemas may hold themselves; the rest is expanded where it stands.
class SchemaCompiler {
 public:
  // What one schema may take, in all of its parts.
  struct Work {
    int num_schemas = 0, num_automata = 0;
  };
  SchemaCompiler(GrammarBuilder& builder, const Schema& root, Work& work)
      : builder_(builder), json_(builder), root_(root), work_(work) {}

  Element compile(const Schema& schema, const std::string& path);
  // The arguments of a tool with these parameters, in their order: texts as they are, other values as JSON. Throws
  // UsageError also for keywords that bind several of them.
  Element tagged(const Schema& schema, const TaggedForm& form, const std::string& path);

 private:
  // How many things there are to be; max may be kUnbounded.
  struct Counts {
    int64_t min = 0, max = kUnbounded;
    bool allows(int64_t n) const { return max == kUnbounded || n <= max; }
  };
  // A member of an object or list, with the space behind it.
  struct Member {
    Sequence text;
    bool is_required = false;
  };
  // A name that a schema speaks of; the schema of its value, null where it is only required.
  struct Declared {
    std::string name;
    Schema schema;
    bool is_required = false;
  };
  // Names of one kind, and the schemas of their values.
  struct Names {
    TextAutomaton names;
    Schema all_of = Schema::array();
  };

  [[noreturn]] static void fail(const std::string& path, std::string_view what);
  Element compile_one(const Schema& given, const std::string& path);
  const Schema& target(const std::string& pointer, const std::string& path) const;
  Element reference(const std::string& pointer, const std::string& path);
  Schema flattened(const Schema& given, const std::string& path, int depth = 0);
  Element any_of(const Schema& schema, const char* keyword, bool is_alone, const std::string& path);
  std::optional<Grammar> grammar_of(const Schema& schema, const std::string& path);
  std::vector<Schema> values_of(const Schema& schema, const std::string& path);
  Sequence written(const Schema& value);
  Element values(const Schema& schema, const std::string& path);
  Element of_type(const std::string& type, const Schema& schema, const std::string& path);
  static std::vector<std::string> types(const Schema& schema, const std::string& path);
  Forbidden forbidden(const Schema& schema, const std::string& path) const;

  int64_t count(const Schema& schema, const char* keyword, int64_t otherwise, const std::string& path) const;
  Counts counts(const Schema& schema, const char* min, const char* max, const std::string& path) const;
  Element string(const Schema& schema, const std::string& path);
  std::vector<std::string> patterns(const Schema& schema, const std::string& path) const;
  void count_automaton();
  TextAutomaton texts_of(const Schema& schema, const std::string& path);
  Element numbers(const Schema& schema, bool is_integer, const std::string& path);
  NumberBounds bounds(const Schema& schema, const std::string& path);

  // schema_objects.cpp
  Element object(const Schema& schema, const std::string& path);
  std::vector<Declared> declared_in(const Schema& schema, const Schema& properties, const std::string& path);
  std::vector<Member> members(const std::vector<Declared>& declared, const Schema& schema, const Schema& patterns,
                              const Schema& more, const std::string& path);
  Element members_and_others(const std::vector<Member>& members, Element other_member, const Counts& limits);
  std::vector<Names> split(TextAutomaton names, const Schema& patterns, const std::string& path);
  TextAutomaton names_of(const Schema& schema, const std::string& path);
  Element others(const Schema& schema, const std::vector<Declared>& declared, const Schema& more,
                 const std::string& path);
  Element array(const Schema& schema, const std::string& path);
  Element different_values(const Schema& items, const Counts& counts, const std::string& path);
  Element containing(const Schema& schema, const Schema& items, const Counts& counts, const std::string& path);
  // schema_tagged.cpp
  Element tagged_value(const Schema& schema, const TaggedForm& form, const std::string& path);
  Element marked_value(const Schema& schema, const TaggedForm& form, const std::string& path);
  Element separated(const std::vector<Member>& arguments, const Sequence& more, const Sequence& separator);
  Element plain_text(const Schema& schema, const TaggedForm& form, const std::string& path);

  // Members in this order, each at most once; end: what may follow when there were n, a number that stops growing
  // where it no longer matters.
  Element in_order(const std::vector<Member>& members, const Counts& counts,
                   const std::function<Element(int64_t n)>& end);

  GrammarBuilder& builder_;
  JsonText json_;
  const Schema& root_;
  Work& work_;
  std::map<std::string, RuleId> references_;
  std::map<std::string, Element>
      known_;                        // small schemas by their text: what conditions combine comes again and again
  std::optional<Element> any_text_;  // of plain_text()
  int depth_ = 0;
};

}  // namespace weft::constrain
