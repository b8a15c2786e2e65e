// Automata by the textbook: Thompson's construction, subsets, products, partition refinement, and
// the elimination of states.
#include "grammar/language.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace nibble {

namespace {

using Kind = PatternNode::Kind;
constexpr size_t kPatternPartsMax = 20000;  // of a regular expression made from an automaton

Error too_complex() {
  return make_error(ErrorCode::invalid_argument,
                    {.what = "the pattern is too complex",
                     .expected = concat("at most ", Language::kStatesMax, " states"),
                     .advice = "make it shorter, or leave out lengths beside it"});
}

void append_character(std::string& utf8, uint32_t c) {
  const auto put = [&](uint32_t byte) { utf8 += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0U | c >> 6U);
  } else {
    if (c < 0x10000) {
      put(0xE0U | c >> 12U);
    } else {
      put(0xF0U | c >> 18U);
      put(0x80U | (c >> 12U & 0x3FU));
    }
    put(0x80U | (c >> 6U & 0x3FU));
  }
  put(0x80U | (c & 0x3FU));
}

/// An automaton that may be in several states at once.
struct Machine {
  struct Node {
    std::vector<int> free;
    std::vector<std::pair<CharacterRange, int>> on;
  };
  std::vector<Node> nodes;
  bool too_large = false;

  int add() {
    too_large = too_large || nodes.size() > 10 * Language::kStatesMax;
    nodes.emplace_back();
    return static_cast<int>(nodes.size()) - 1;
  }
  Node& at(int index) { return nodes[static_cast<size_t>(index)]; }
  int build(const Pattern& pattern, int from);
  int build_repeat(const PatternNode& node, int from);
  void close(std::vector<int>& set) const;
};

int Machine::build_repeat(const PatternNode& node, int from) {
  int at_end = from;
  for (int i = 0; i < node.least && !too_large; ++i) at_end = build(node.parts[0], at_end);
  if (node.most < 0) {
    const int loop = add();
    at(at_end).free.push_back(loop);
    const int back = build(node.parts[0], loop);
    at(back).free.push_back(loop);
    const int out = add();
    at(loop).free.push_back(out);
    return out;
  }
  const int out = add();
  at(at_end).free.push_back(out);
  for (int i = node.least; i < node.most && !too_large; ++i) {
    at_end = build(node.parts[0], at_end);
    at(at_end).free.push_back(out);
  }
  return out;
}

/// Adds what reads the pattern from a state on; the state where it ends.
int Machine::build(const Pattern& pattern, int from) {
  if (too_large) return from;
  switch (pattern->kind) {
    case Kind::characters: {
      const int out = add();
      for (const CharacterRange& range : pattern->characters) at(from).on.emplace_back(range, out);
      return out;
    }
    case Kind::sequence:
      for (const Pattern& part : pattern->parts) from = build(part, from);
      return from;
    case Kind::choice: {
      const int out = add();
      for (const Pattern& part : pattern->parts) {
        const int in = add();
        at(from).free.push_back(in);
        const int end = build(part, in);
        at(end).free.push_back(out);
      }
      return out;
    }
    default:
      return build_repeat(*pattern, from);
  }
}

void Machine::close(std::vector<int>& set) const {
  std::vector<bool> in(nodes.size(), false);
  for (const int node : set) in[static_cast<size_t>(node)] = true;
  for (size_t i = 0; i < set.size(); ++i)
    for (const int next : nodes[static_cast<size_t>(set[i])].free)
      if (!in[static_cast<size_t>(next)]) {
        in[static_cast<size_t>(next)] = true;
        set.push_back(next);
      }
  std::ranges::sort(set);
}

/// Edges that touch and lead to the same state become one.
void join_edges(std::vector<Language::Edge>& edges) {
  std::ranges::sort(edges);
  std::vector<Language::Edge> made;
  for (const Language::Edge& edge : edges) {
    if (!made.empty() && made.back().to == edge.to && made.back().on.last + 1 == edge.on.first)
      made.back().on.last = edge.on.last;
    else
      made.push_back(edge);
  }
  edges = std::move(made);
}

/// The places where ranges begin, and those after their ends.
template <typename Each>
std::vector<uint32_t> borders_of(const Each& ranges) {
  std::vector<uint32_t> borders;
  for (const CharacterRange& range : ranges) {
    borders.push_back(range.first);
    borders.push_back(range.last + 1);
  }
  std::ranges::sort(borders);
  borders.erase(std::ranges::unique(borders).begin(), borders.end());
  return borders;
}

/// Removes the states from which nothing is accepted.
std::vector<Language::State> trimmed(std::vector<Language::State> states) {
  std::vector<std::vector<int>> before(states.size());
  std::vector<int> useful;
  std::vector<bool> keep(states.size(), false);
  for (size_t i = 0; i < states.size(); ++i) {
    for (const Language::Edge& edge : states[i].edges)
      before[static_cast<size_t>(edge.to)].push_back(static_cast<int>(i));
    if (states[i].accepts) {
      keep[i] = true;
      useful.push_back(static_cast<int>(i));
    }
  }
  for (size_t i = 0; i < useful.size(); ++i)
    for (const int from : before[static_cast<size_t>(useful[i])])
      if (!keep[static_cast<size_t>(from)]) {
        keep[static_cast<size_t>(from)] = true;
        useful.push_back(from);
      }
  keep[0] = true;
  std::vector<int> renamed(states.size(), -1);
  std::vector<Language::State> made;
  for (size_t i = 0; i < states.size(); ++i)
    if (keep[i]) {
      renamed[i] = static_cast<int>(made.size());
      made.push_back(std::move(states[i]));
    }
  for (Language::State& state : made) {
    std::erase_if(state.edges,
                  [&](const Language::Edge& e) { return renamed[static_cast<size_t>(e.to)] < 0; });
    for (Language::Edge& edge : state.edges) edge.to = renamed[static_cast<size_t>(edge.to)];
    join_edges(state.edges);
  }
  return made;
}

/// States that accept the same texts become one.
std::vector<Language::State> merged(std::vector<Language::State> states) {
  std::vector<int> group(states.size());
  for (size_t i = 0; i < states.size(); ++i) group[i] = states[i].accepts ? 1 : 0;
  using Signature = std::pair<int, std::vector<Language::Edge>>;
  for (size_t count = 0;;) {
    std::map<Signature, int> known;
    std::vector<int> next(states.size());
    for (size_t i = 0; i < states.size(); ++i) {
      std::vector<Language::Edge> edges = states[i].edges;
      for (Language::Edge& edge : edges) edge.to = group[static_cast<size_t>(edge.to)];
      join_edges(edges);
      next[i] = known.try_emplace({group[i], std::move(edges)}, static_cast<int>(known.size()))
                    .first->second;
    }
    group = std::move(next);
    if (known.size() == count) break;
    count = known.size();
  }
  // State 0 has group 0: it is seen first.
  std::vector<Language::State> made(static_cast<size_t>(*std::ranges::max_element(group)) + 1);
  for (size_t i = 0; i < states.size(); ++i) {
    for (Language::Edge& edge : states[i].edges) edge.to = group[static_cast<size_t>(edge.to)];
    join_edges(states[i].edges);
    made[static_cast<size_t>(group[i])] = std::move(states[i]);
  }
  return made;
}

int step(const std::vector<Language::State>& states, int state, uint32_t character) {
  if (state < 0) return -1;
  for (const Language::Edge& edge : states[static_cast<size_t>(state)].edges)
    if (edge.on.first <= character && character <= edge.on.last) return edge.to;
  return -1;
}

enum class Product : uint8_t { both, without };

Result<std::vector<Language::State>> product(const std::vector<Language::State>& a,
                                             const std::vector<Language::State>& b, Product kind) {
  std::map<std::pair<int, int>, int> known = {{{0, 0}, 0}};
  std::vector<std::pair<int, int>> pairs = {{0, 0}};
  std::vector<Language::State> made;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (i > Language::kStatesMax) return too_complex();
    const auto [left, right] = pairs[i];
    const bool in_b = right >= 0 && b[static_cast<size_t>(right)].accepts;
    Language::State state;
    state.accepts = a[static_cast<size_t>(left)].accepts && (kind == Product::both ? in_b : !in_b);
    Characters ranges;
    for (const auto& edge : a[static_cast<size_t>(left)].edges) ranges.push_back(edge.on);
    if (right >= 0)
      for (const auto& edge : b[static_cast<size_t>(right)].edges) ranges.push_back(edge.on);
    const auto borders = borders_of(ranges);
    for (size_t k = 0; k + 1 < borders.size(); ++k) {
      const int to_a = step(a, left, borders[k]);
      const int to_b = step(b, right, borders[k]);
      if (to_a < 0 || (kind == Product::both && to_b < 0)) continue;
      const auto [found, fresh] = known.try_emplace({to_a, to_b}, static_cast<int>(pairs.size()));
      if (fresh) pairs.emplace_back(to_a, to_b);
      state.edges.push_back({{borders[k], borders[k + 1] - 1}, found->second});
    }
    made.push_back(std::move(state));
  }
  return trimmed(std::move(made));
}

}  // namespace

Language Language::of_states(std::vector<State> states) {
  Language made;
  made.states_ = trimmed(std::move(states));
  return made;
}

Result<Language> Language::of(const Pattern& pattern) {
  Machine machine;
  const int start = machine.add();
  const int end = machine.build(pattern, start);
  if (machine.too_large) return too_complex();
  std::vector<int> first = {start};
  machine.close(first);
  std::map<std::vector<int>, int> known = {{first, 0}};
  std::vector<std::vector<int>> sets = {first};
  std::vector<State> states;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (i > kStatesMax) return too_complex();
    State state;
    state.accepts = std::ranges::binary_search(sets[i], end);
    std::vector<std::pair<CharacterRange, int>> on;
    for (const int node : sets[i])
      on.insert(on.end(), machine.at(node).on.begin(), machine.at(node).on.end());
    Characters ranges;
    for (const auto& [range, to] : on) ranges.push_back(range);
    const auto borders = borders_of(ranges);
    for (size_t k = 0; k + 1 < borders.size(); ++k) {
      std::vector<int> next;
      for (const auto& [range, to] : on)
        if (range.first <= borders[k] && borders[k] <= range.last) next.push_back(to);
      if (next.empty()) continue;
      std::ranges::sort(next);
      next.erase(std::ranges::unique(next).begin(), next.end());
      machine.close(next);
      const auto [found, fresh] = known.try_emplace(next, static_cast<int>(sets.size()));
      if (fresh) sets.push_back(next);
      state.edges.push_back({{borders[k], borders[k + 1] - 1}, found->second});
    }
    states.push_back(std::move(state));
  }
  return of_states(std::move(states));
}

Result<Language> Language::both(const Language& a, const Language& b) {
  Language made;
  made.states_ = TRY(product(a.states_, b.states_, Product::both));
  return made;
}

Result<Language> Language::without(const Language& a, const Language& b) {
  Language made;
  made.states_ = TRY(product(a.states_, b.states_, Product::without));
  return made;
}

bool Language::empty() const { return !states_[0].accepts && states_[0].edges.empty(); }

bool Language::accepts(std::string_view utf8) const {
  int state = 0;
  for (const uint32_t character : characters_of_text(utf8)) state = step(states_, state, character);
  return state >= 0 && states_[static_cast<size_t>(state)].accepts;
}

std::optional<std::string> Language::example() const {
  // The shortest way to an accepting state.
  std::vector<std::optional<std::string>> to(states_.size());
  std::vector<int> way = {0};
  to[0] = "";
  for (size_t i = 0; i < way.size(); ++i) {
    const auto at = static_cast<size_t>(way[i]);
    if (states_[at].accepts) return to[at];
    for (const Edge& edge : states_[at].edges) {
      auto& next = to[static_cast<size_t>(edge.to)];
      if (next) continue;
      next = *to[at];
      append_character(*next, edge.on.first);
      way.push_back(edge.to);
    }
  }
  return std::nullopt;
}

namespace {

/// States are taken out one by one, those of the fewest ways through them first; the ways become
/// patterns.
class Elimination {
 public:
  explicit Elimination(const std::vector<Language::State>& states);
  Result<Pattern> run();

 private:
  void take_out(int state);
  void add(int from, int to, Pattern pattern);

  using Ways = std::map<int, Pattern>;
  std::vector<Ways> out_;
  std::vector<Ways> in_;  // the same, the other way round
  size_t parts_ = 0;
};

Elimination::Elimination(const std::vector<Language::State>& states)
    : out_(states.size() + 2), in_(states.size() + 2) {
  const int start = static_cast<int>(states.size());
  add(start, 0, sequence_pattern({}));
  for (size_t i = 0; i < states.size(); ++i) {
    std::map<int, Characters> to;
    for (const auto& edge : states[i].edges) to[edge.to].push_back(edge.on);
    for (auto& [next, characters] : to)
      add(static_cast<int>(i), next, characters_pattern(std::move(characters)));
    if (states[i].accepts) add(static_cast<int>(i), start + 1, sequence_pattern({}));
  }
}

void Elimination::add(int from, int to, Pattern pattern) {
  ++parts_;
  Pattern& way = out_[static_cast<size_t>(from)][to];
  if (way) {
    if (way->kind == Kind::sequence && way->parts.empty())
      pattern = repeat_pattern(std::move(pattern), 0, 1);
    else if (pattern->kind == Kind::sequence && pattern->parts.empty())
      pattern = repeat_pattern(way, 0, 1);
    else
      pattern = choice_pattern({way, std::move(pattern)});
  }
  way = pattern;
  in_[static_cast<size_t>(to)][from] = way;
}

void Elimination::take_out(int state) {
  Ways in = std::move(in_[static_cast<size_t>(state)]);
  Ways out = std::move(out_[static_cast<size_t>(state)]);
  std::optional<Pattern> loop;
  if (const auto own = out.find(state); own != out.end()) {
    loop = repeat_pattern(own->second, 0, -1);
    out.erase(own);
    in.erase(state);
  }
  for (const auto& [from, way] : in) out_[static_cast<size_t>(from)].erase(state);
  for (const auto& [to, way] : out) in_[static_cast<size_t>(to)].erase(state);
  for (const auto& [from, before] : in)
    for (const auto& [to, after] : out) {
      std::vector<Pattern> parts = {before};
      if (loop) parts.push_back(*loop);
      parts.push_back(after);
      add(from, to, sequence_pattern(std::move(parts)));
    }
  out_[static_cast<size_t>(state)].clear();
  in_[static_cast<size_t>(state)].clear();
}

size_t printed_parts(const Pattern& pattern, size_t most) {
  size_t count = 1;
  for (const Pattern& part : pattern->parts) {
    if (count > most) return count;
    count += printed_parts(part, most - count);
  }
  return count;
}

Result<Pattern> Elimination::run() {
  const int states = static_cast<int>(out_.size()) - 2;
  std::vector<bool> gone(static_cast<size_t>(states), false);
  for (int round = 0; round < states; ++round) {
    int best = -1;
    size_t ways_least = 0;
    for (int i = 0; i < states; ++i) {
      if (gone[static_cast<size_t>(i)]) continue;
      const size_t ways = in_[static_cast<size_t>(i)].size() * out_[static_cast<size_t>(i)].size();
      if (best >= 0 && ways >= ways_least) continue;
      best = i;
      ways_least = ways;
    }
    gone[static_cast<size_t>(best)] = true;
    take_out(best);
    if (parts_ > kPatternPartsMax) return too_complex();
  }
  const Ways& ways = out_[static_cast<size_t>(states)];
  if (ways.empty()) return choice_pattern({});
  const Pattern made = ways.begin()->second;
  if (printed_parts(made, kPatternPartsMax) > kPatternPartsMax) return too_complex();
  return made;
}

}  // namespace

Result<Pattern> Language::pattern() const {
  if (empty()) return choice_pattern({});
  return Elimination(merged(states_)).run();
}

}  // namespace nibble
