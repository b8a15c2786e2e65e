// BPE against the definition, spelled out naively: random merge tables, words of every length on
// both sides of the short-word limit, with and without remembered words.
#include "text/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace nibble {
namespace {

using Ids = std::vector<int32_t>;

struct Table {
  std::array<int32_t, 256> byte_ids;
  std::vector<BpeMerge> merges;
};

/// Bytes a..d and merges among them and their products, in no sensible order.
Table random_table(std::mt19937& random, size_t merges) {
  Table table;
  for (int i = 0; i < 256; ++i) table.byte_ids[i] = 255 - i;
  std::vector<std::string> texts;
  std::map<std::string, int32_t> ids;
  for (const char c : {'a', 'b', 'c', 'd'}) {
    texts.push_back(std::string(1, c));
    ids[texts.back()] = table.byte_ids[static_cast<unsigned char>(c)];
  }
  while (table.merges.size() < merges) {
    const std::string left = texts[random() % texts.size()], right = texts[random() % texts.size()];
    const auto [made, is_new] =
        ids.try_emplace(left + right, static_cast<int32_t>(1000 + ids.size()));
    if (is_new) texts.push_back(left + right);
    table.merges.push_back({ids[left], ids[right], made->second});
  }
  std::shuffle(table.merges.begin(), table.merges.end(), random);
  return table;
}

/// The definition: among all adjacent pairs, the lowest rank, leftmost of equals; the last merge of
/// a pair gives its rank.
Ids naive(const Table& table, const std::string& word) {
  std::map<std::pair<int32_t, int32_t>, size_t> rank;
  for (size_t i = 0; i < table.merges.size(); ++i) {
    rank[{table.merges[i].left, table.merges[i].right}] = i;
  }
  Ids ids;
  for (const char c : word) ids.push_back(table.byte_ids[static_cast<unsigned char>(c)]);
  while (true) {
    size_t best = table.merges.size(), place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = rank.find({ids[i], ids[i + 1]});
      if (found != rank.end() && found->second < best) {
        best = found->second;
        place = i;
      }
    }
    if (best == table.merges.size()) return ids;
    ids[place] = table.merges[best].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

TEST(Bpe, EqualsTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const Table table = random_table(random, 1 + random() % 60);
    const BpeModel model(table.byte_ids, table.merges);
    BpeModel::Scratch remembering(1 << 20), forgetful(0);
    for (int i = 0; i < 60; ++i) {
      std::string word;
      const size_t length = random() % (i % 3 == 0 ? 90 : 18);
      for (size_t k = 0; k < length; ++k) word += "abcde"[random() % (1 + random() % 5)];
      const Ids expected = naive(table, word);
      for (BpeModel::Scratch* scratch : {&remembering, &forgetful, &remembering}) {
        Ids ids = {7};  // appends
        model.encode(word, *scratch, ids);
        ids.erase(ids.begin());
        EXPECT_EQ(ids, expected) << word;
      }
    }
  }
}

/// The words have every length around the longest that is remembered. Only words of few tokens are,
/// so all of a word before its changed byte is one token.
TEST(Bpe, RemembersWordsThatDifferInOneBit) {
  const std::string letters = "abcdefghijklmnopqrst";
  Table table;
  for (int i = 0; i < 256; ++i) table.byte_ids[i] = i;
  int32_t left = letters[0];
  for (int32_t made = 256; const char next : letters.substr(1)) {
    table.merges.push_back({left, next, made});
    left = made++;
  }
  const BpeModel model(table.byte_ids, table.merges);
  for (size_t length = 2; length <= letters.size(); ++length) {
    BpeModel::Scratch scratch(1 << 20);
    for (size_t changed = length - 2; changed < length; ++changed)
      for (int bit = 0; bit < 8; ++bit)
        for (const int flipped : {0, 1, 0}) {
          std::string word = letters.substr(0, length);
          word[changed] = static_cast<char>(word[changed] ^ (flipped << bit));
          Ids ids;
          model.encode(word, scratch, ids);
          ASSERT_EQ(ids, naive(table, word))
              << length << " bytes, bit " << bit << " of " << changed;
        }
  }
}

TEST(Bpe, RemembersWordsThatDifferOnlyInLength) {
  Table table;
  for (int i = 0; i < 256; ++i) table.byte_ids[i] = i;
  const BpeModel model(table.byte_ids, table.merges);
  BpeModel::Scratch scratch(1 << 20);
  for (int round = 0; round < 2; ++round) {
    for (const std::string& word : {std::string("\0\0", 2), std::string("\0\0\0", 3)}) {
      Ids ids;
      model.encode(word, scratch, ids);
      EXPECT_EQ(ids.size(), word.size());
    }
  }
  Ids none;
  model.encode("", scratch, none);
  EXPECT_TRUE(none.empty());
}

}  // namespace
}  // namespace nibble
