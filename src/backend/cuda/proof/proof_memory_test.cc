// The memory of a card's products of 4-bit codes, and the decisions made of it: pure decisions,
// with files of a temporary folder and results that are given.
#include "backend/cuda/proof/proof_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "testing/golden.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

using cuda::Fp4Proof;

const ProofSubject kSubject{.card = "NVIDIA GeForce RTX 5090, 00ff, sm_120f",
                            .driver = "580.159.03, CUDA 13000",
                            .program = "build 0a1b"};
constexpr Fp4HarnessResult kEqual{.cases = 100};
constexpr Fp4HarnessResult kDifferent{.cases = 100, .different = 3, .first_case = 17};

class ProofMemory : public testing::Test {
 protected:
  ProofOutcome prove(const Result<Fp4HarnessResult>& result,
                     const ProofSubject& subject = kSubject) {
    return prove_products(file_, subject, [&] {
      ++runs_;
      return result;
    });
  }
  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "cache" / "nibble" / "fp4-proof.json";
  int runs_ = 0;
};

TEST_F(ProofMemory, APassIsRememberedAndNotTriedAgain) {
  const ProofOutcome first = prove(kEqual);
  EXPECT_EQ(first.proof, Fp4Proof::equal);
  EXPECT_EQ(first.notice, "");
  const ProofOutcome second = prove(kDifferent);
  EXPECT_EQ(second.proof, Fp4Proof::equal);
  EXPECT_EQ(second.notice, "");
  EXPECT_EQ(runs_, 1);
}

TEST_F(ProofMemory, AFailureIsRememberedAndToldEachTime) {
  const ProofOutcome first = prove(kDifferent);
  EXPECT_EQ(first.proof, Fp4Proof::different);
  EXPECT_EQ(first.notice,
            "this card's products of 4-bit codes are not those that the program computes (3 sums "
            "of 100 fragments differ, the first in fragment 17): the weight-only kernels run "
            "instead; please report it with the file that nibble doctor --receipt writes\n");
  const ProofOutcome second = prove(kEqual);
  EXPECT_EQ(second.proof, Fp4Proof::different);
  EXPECT_NE(second.notice.find("remembered in " + file_.string()), std::string::npos)
      << second.notice;
  EXPECT_EQ(std::ranges::count(second.notice, '\n'), 1);
  EXPECT_EQ(runs_, 1);
}

TEST_F(ProofMemory, AnotherCardDriverProgramOrWayIsTriedByItself) {
  prove(kEqual);
  ProofSubject others[4] = {kSubject, kSubject, kSubject, kSubject};
  others[0].card = "NVIDIA GeForce RTX 5090, 00fe, sm_120f";
  others[1].driver = "580.159.04, CUDA 13000";
  others[2].program = "build 0a1c";
  others[3].way = Fp4Products::software;
  for (const ProofSubject& other : others) {
    const int before = runs_;
    EXPECT_EQ(prove(kDifferent, other).proof, Fp4Proof::different) << other.card;
    EXPECT_EQ(runs_, before + 1);
  }
  EXPECT_EQ(prove(kDifferent).proof, Fp4Proof::equal) << "the first is still remembered";
}

TEST_F(ProofMemory, DamagedFilesAreAsIfThereWereNone) {
  prove(kDifferent);
  std::string sound;
  std::getline(std::ifstream(file_), sound, '\0');
  std::string other_schema = sound;
  other_schema.replace(other_schema.find("\"schema\": 1"), 11, "\"schema\": 2");
  std::string no_bool = sound;
  no_bool.replace(no_bool.find("false"), 5, "\"yes\"");
  for (const std::string& text :
       {std::string(), std::string("{"), sound.substr(0, sound.size() / 2), other_schema, no_bool,
        std::string("[]"), std::string(R"({"schema":1,"proofs":[3,null,{}]})"),
        std::string(1 << 20, ' ')}) {
    std::ofstream(file_) << text;
    EXPECT_EQ(remembered_proof(file_, kSubject), std::nullopt) << text.substr(0, 40);
    const int before = runs_;
    EXPECT_EQ(prove(kEqual).proof, Fp4Proof::equal);
    EXPECT_EQ(runs_, before + 1);
    EXPECT_EQ(remembered_proof(file_, kSubject), Fp4Proof::equal) << "the file is whole again";
  }
}

TEST_F(ProofMemory, AFolderThatCannotBeWrittenCostsTheMemoryAlone) {
  std::ofstream(folder_ / "cache") << "a file where the folder should be";
  for (const Fp4HarnessResult& result : {kEqual, kDifferent}) {
    const ProofOutcome outcome = prove(result);
    EXPECT_EQ(outcome.proof, result.equal() ? Fp4Proof::equal : Fp4Proof::different);
    EXPECT_NE(outcome.notice.find("is made again at the next start"), std::string::npos)
        << outcome.notice;
  }
  EXPECT_EQ(runs_, 2);
}

TEST_F(ProofMemory, WithoutAFileNothingIsSaid) {
  file_.clear();
  EXPECT_EQ(prove(kEqual).notice, "");
  EXPECT_EQ(prove(kEqual).proof, Fp4Proof::equal);
  EXPECT_EQ(runs_, 2);
}

TEST_F(ProofMemory, AHarnessThatDoesNotRunProvesNothingAndIsNotRemembered) {
  const ProofOutcome outcome =
      prove(make_error(ErrorCode::no_memory, {.what = "the card", .found = "full"}));
  EXPECT_EQ(outcome.proof, Fp4Proof::none);
  EXPECT_NE(outcome.notice.find("the card: found full"), std::string::npos) << outcome.notice;
  EXPECT_FALSE(std::filesystem::exists(file_));
  EXPECT_EQ(prove(kEqual).proof, Fp4Proof::equal);
}

TEST_F(ProofMemory, OnlyTheNewestAreKept) {
  for (int i = 0; i < 20; ++i) {
    ProofSubject other = kSubject;
    other.program = concat("build ", i);
    prove(kEqual, other);
  }
  for (int i = 0; i < 20; ++i)  // the same again takes no place
    remember_proof(file_, kSubject, i % 2 == 0 ? Fp4Proof::equal : Fp4Proof::different).value();
  EXPECT_EQ(remembered_proof(file_, kSubject), Fp4Proof::different);
  ProofSubject oldest = kSubject;
  oldest.program = "build 0";
  EXPECT_EQ(remembered_proof(file_, oldest), std::nullopt);
  oldest.program = "build 19";
  EXPECT_EQ(remembered_proof(file_, oldest), Fp4Proof::equal);
  EXPECT_LT(std::filesystem::file_size(file_), 4096U);
}

TEST_F(ProofMemory, WhatNeedsAReceiptIsOffUntilOnePassed) {
  const ProofOutcome before = receipt_proof(file_, kSubject);
  EXPECT_EQ(before.proof, Fp4Proof::none);
  EXPECT_NE(before.notice.find("off until nibble doctor --receipt has passed"), std::string::npos);
  EXPECT_EQ(std::ranges::count(before.notice, '\n'), 1);
  EXPECT_FALSE(std::filesystem::exists(file_));
  remember_proof(file_, kSubject, Fp4Proof::equal).value();
  EXPECT_EQ(receipt_proof(file_, kSubject).proof, Fp4Proof::equal);
  EXPECT_EQ(receipt_proof(file_, kSubject).notice, "");
  ProofSubject other = kSubject;
  other.program = "build 0a1c";
  EXPECT_EQ(receipt_proof(file_, other).proof, Fp4Proof::none) << "another program needs its own";
  remember_proof(file_, kSubject, Fp4Proof::different).value();
  const ProofOutcome after = receipt_proof(file_, kSubject);
  EXPECT_EQ(after.proof, Fp4Proof::different);
  EXPECT_NE(after.notice.find("a receipt, remembered in " + file_.string()), std::string::npos);
  file_.clear();
  EXPECT_EQ(receipt_proof(file_, kSubject).proof, Fp4Proof::none);
}

TEST(ProofOfThisProgram, HasAName) {
  EXPECT_FALSE(running_program().empty());
  EXPECT_EQ(running_program(), running_program());
}

/// The choice for a golden model on a card that multiplies codes in one of the ways.
ProductsChoice settled(const char* name, Activations asked, Fp4Products way, Fp4Proof proof) {
  return cuda::settle_products(load_golden(concat("model-quantized/", name)).weights, asked, way,
                               proof);
}

TEST(SettledProducts, CodesOnlyWhereTheyAreDeclaredAndProved) {
  const char* const kDeclares = "nvfp4-w4a4";
  constexpr auto kWay = Fp4Products::instruction;
  const ProductsChoice taken = settled(kDeclares, Activations::automatic, kWay, Fp4Proof::equal);
  EXPECT_EQ(taken.activations, Activations::declared);
  EXPECT_EQ(taken.way, kWay);
  EXPECT_NE(taken.reason.find("they get them"), std::string::npos);
  for (const Fp4Proof proof : {Fp4Proof::none, Fp4Proof::different}) {
    const ProductsChoice left = settled(kDeclares, Activations::automatic, kWay, proof);
    EXPECT_EQ(left.activations, Activations::automatic);
    EXPECT_EQ(left.way, Fp4Products::widened);
    EXPECT_NE(left.reason.find("weight-only"), std::string::npos);
    // Activations that were asked for stay, in BF16.
    const ProductsChoice asked = settled(kDeclares, Activations::declared, kWay, proof);
    EXPECT_EQ(asked.activations, Activations::declared);
    EXPECT_EQ(asked.way, Fp4Products::widened);
  }
  EXPECT_EQ(settled(kDeclares, Activations::declared, kWay, Fp4Proof::equal).way, kWay);
  for (const Activations other : {Activations::bf16, Activations::f32})
    EXPECT_EQ(settled(kDeclares, other, kWay, Fp4Proof::equal),
              ProductsChoice{.activations = other});
  const ProductsChoice unchanged{.activations = Activations::automatic};
  EXPECT_EQ(settled(kDeclares, Activations::automatic, Fp4Products::widened, Fp4Proof::equal),
            unchanged);
  EXPECT_EQ(settled("nvfp4-w4a16", Activations::automatic, kWay, Fp4Proof::equal), unchanged);
}

/// Inputs of 8 bits alone are taken only by who asks for them.
TEST(SettledProducts, Fp8WhereItIsAskedForAndProved) {
  const char* const kDeclares = "qwen-fp8";
  constexpr auto kWay = Fp4Products::instruction;
  const ProductsChoice taken = settled(kDeclares, Activations::declared, kWay, Fp4Proof::equal);
  EXPECT_EQ(taken.activations, Activations::declared);
  EXPECT_EQ(taken.way, kWay);
  EXPECT_NE(taken.reason.find("declare 8-bit inputs"), std::string::npos) << taken.reason;
  for (const Fp4Proof proof : {Fp4Proof::none, Fp4Proof::different})
    EXPECT_EQ(settled(kDeclares, Activations::declared, kWay, proof),
              ProductsChoice{.activations = Activations::declared});
  EXPECT_EQ(settled(kDeclares, Activations::declared, Fp4Products::widened, Fp4Proof::equal),
            ProductsChoice{.activations = Activations::declared});
  for (const Activations other : {Activations::automatic, Activations::bf16})
    EXPECT_EQ(settled(kDeclares, other, kWay, Fp4Proof::equal),
              ProductsChoice{.activations = other});
}

}  // namespace
}  // namespace nibble
