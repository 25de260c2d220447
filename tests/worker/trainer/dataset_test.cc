// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lzma.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "worker/trainer/data_file.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Each test has a folder of its own.
class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = absl::StrCat(::testing::TempDir(), "/", test->test_suite_name(), ".", test->name(), ".",
                        getpid());
    std::filesystem::create_directories(dir_);
  }
  ~DatasetTest() override { std::filesystem::remove_all(dir_); }

  void WritePlain(const std::string& name, const std::string& content) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << content;
  }
  void WriteGzip(const std::string& name, const std::string& content) {
    gzFile file = gzopen((dir_ + "/" + name).c_str(), "wb");
    ASSERT_EQ(gzwrite(file, content.data(), static_cast<unsigned>(content.size())),
              static_cast<int>(content.size()));
    ASSERT_EQ(gzclose(file), Z_OK);
  }
  void WriteXz(const std::string& name, const std::string& content) {
    std::string packed(lzma_stream_buffer_bound(content.size()), '\0');
    size_t used = 0;
    ASSERT_EQ(lzma_easy_buffer_encode(
                  6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(content.data()),
                  content.size(), reinterpret_cast<uint8_t*>(packed.data()), &used, packed.size()),
              LZMA_OK);
    packed.resize(used);
    WritePlain(name, packed);
  }
  void Cut(const std::string& name, size_t by) {
    const std::string path = dir_ + "/" + name;
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - by);
  }
  std::string Error(const std::string& dataset, absl::StatusCode code) {
    const auto data = LoadDataset(dataset, dir_);
    EXPECT_EQ(data.status().code(), code) << data.status();
    return std::string(data.status().message());
  }

  std::string dir_;
};

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

struct IdxHeader {
  uint32_t magic = 2051;
  uint32_t count = 0;
  uint32_t rows = 0;
  uint32_t columns = 0;
};

std::string IdxImages(const IdxHeader& header) {
  std::string content = BigEndian(header.magic) + BigEndian(header.count) + BigEndian(header.rows) +
                        BigEndian(header.columns);
  const uint32_t pixels = header.count * header.rows * header.columns;
  for (uint32_t i = 0; i < pixels; ++i) content.push_back(static_cast<char>(i));
  return content;
}

std::string IdxLabels(uint32_t magic, const std::vector<int>& labels) {
  std::string content = BigEndian(magic) + BigEndian(static_cast<uint32_t>(labels.size()));
  for (const int label : labels) content.push_back(static_cast<char>(label));
  return content;
}

class MnistTest : public DatasetTest {
 protected:
  void SetUp() override {
    WriteGzip("train-images-idx3-ubyte.gz", IdxImages({.count = 3, .rows = 4, .columns = 5}));
    WriteGzip("train-labels-idx1-ubyte.gz", IdxLabels(2049, {7, 0, 9}));
    WriteGzip("t10k-images-idx3-ubyte.gz", IdxImages({.count = 1, .rows = 4, .columns = 5}));
    WriteGzip("t10k-labels-idx1-ubyte.gz", IdxLabels(2049, {2}));
  }
};

TEST_F(MnistTest, ReadsImagesAndLabels) {
  const auto data = LoadDataset("mnist", dir_);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->sample_shape, ElementsAre(1, 4, 5));
  EXPECT_EQ(data->train.count, 3u);
  EXPECT_THAT(data->train.labels, ElementsAre(7, 0, 9));
  EXPECT_EQ(data->test.count, 1u);
  std::vector<float> sample;
  data->AppendSample(data->train, 1, &sample);
  ASSERT_EQ(sample.size(), 20u);
  EXPECT_NEAR(sample[0], (20 / 255.0 - 0.1307) / 0.3081, 1e-5);
}

TEST_F(MnistTest, WrongMagicNamesFileExpectedAndGot) {
  WriteGzip("train-images-idx3-ubyte.gz",
            IdxImages({.magic = 2049, .count = 3, .rows = 4, .columns = 5}));
  EXPECT_THAT(Error("mnist", absl::StatusCode::kDataLoss),
              AllOf(HasSubstr("train-images-idx3-ubyte.gz"), HasSubstr("expected IDX magic 2051"),
                    HasSubstr("got 2049")));
}

TEST_F(MnistTest, TooFewPixelsAreDataLoss) {
  std::string images = IdxImages({.count = 3, .rows = 4, .columns = 5});
  images.pop_back();
  WriteGzip("train-images-idx3-ubyte.gz", images);
  EXPECT_THAT(Error("mnist", absl::StatusCode::kDataLoss), HasSubstr("60, got 59"));
}

TEST_F(MnistTest, ACountThatWouldOverflowIsDataLoss) {
  std::string images = IdxImages({.count = 3, .rows = 4, .columns = 5});
  images.replace(4, 4, BigEndian(0xffffffff));
  WriteGzip("train-images-idx3-ubyte.gz", images);
  Error("mnist", absl::StatusCode::kDataLoss);
}

TEST_F(MnistTest, SidesOfZeroAndOfAMillionAreDataLoss) {
  for (const uint32_t side : {0u, 1'000'000u}) {
    std::string images = IdxImages({.count = 3, .rows = 4, .columns = 5});
    images.replace(8, 4, BigEndian(side));
    WriteGzip("train-images-idx3-ubyte.gz", images);
    EXPECT_THAT(Error("mnist", absl::StatusCode::kDataLoss), HasSubstr("rows"));
  }
}

TEST_F(MnistTest, AHeaderCutShortIsDataLoss) {
  WriteGzip("train-labels-idx1-ubyte.gz", "\0\0\10");
  Error("mnist", absl::StatusCode::kDataLoss);
}

TEST_F(MnistTest, LabelsThatDisagreeInNumberAreDataLoss) {
  WriteGzip("train-labels-idx1-ubyte.gz", IdxLabels(2049, {7, 0}));
  EXPECT_THAT(Error("mnist", absl::StatusCode::kDataLoss), HasSubstr("labels of 3, got 2"));
}

TEST_F(MnistTest, ALabelOverNineIsDataLoss) {
  WriteGzip("train-labels-idx1-ubyte.gz", IdxLabels(2049, {7, 0, 10}));
  EXPECT_THAT(Error("mnist", absl::StatusCode::kDataLoss), HasSubstr("got 10"));
}

TEST_F(MnistTest, TestImagesOfAnotherSizeAreDataLoss) {
  WriteGzip("t10k-images-idx3-ubyte.gz", IdxImages({.count = 1, .rows = 5, .columns = 5}));
  EXPECT_THAT(Error("mnist", absl::StatusCode::kDataLoss), HasSubstr("expected images of 4x5"));
}

TEST_F(MnistTest, AStreamCutShortIsDataLoss) {
  Cut("train-images-idx3-ubyte.gz", 9);
  EXPECT_THAT(Error("mnist", absl::StatusCode::kDataLoss), HasSubstr("gzip"));
}

TEST_F(MnistTest, AFileThatIsNotGzipIsDataLoss) {
  WritePlain("train-images-idx3-ubyte.gz", IdxImages({.count = 3, .rows = 4, .columns = 5}));
  EXPECT_THAT(Error("mnist", absl::StatusCode::kDataLoss), HasSubstr("gzip"));
}

TEST_F(MnistTest, AMissingFileIsNamed) {
  std::filesystem::remove(dir_ + "/t10k-labels-idx1-ubyte.gz");
  EXPECT_THAT(Error("mnist", absl::StatusCode::kNotFound), HasSubstr("t10k-labels-idx1-ubyte.gz"));
}

std::string CifarRecord(char label, char red) {
  std::string record(3073, '\0');
  record[0] = label;
  std::fill(record.begin() + 1, record.begin() + 1025, red);
  return record;
}

class Cifar10Test : public DatasetTest {
 protected:
  void SetUp() override {
    for (int i = 1; i <= 5; ++i) {
      WriteXz(absl::StrCat("data_batch_", i, ".bin.xz"), CifarRecord(static_cast<char>(i), 100));
    }
    WriteXz("test_batch.bin.xz", CifarRecord(9, 0) + CifarRecord(8, 0));
  }
};

TEST_F(Cifar10Test, ReadsRecordsFromXz) {
  const auto data = LoadDataset("cifar10", dir_);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->sample_shape, ElementsAre(3, 32, 32));
  EXPECT_THAT(data->train.labels, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(data->test.labels, ElementsAre(9, 8));
  std::vector<float> sample;
  data->AppendSample(data->train, 0, &sample);
  ASSERT_EQ(sample.size(), 3072u);
  EXPECT_NEAR(sample[0], (100 / 255.0 - 0.4914) / 0.2470, 1e-5);
  EXPECT_NEAR(sample[1024], (0 - 0.4822) / 0.2435, 1e-5);
  EXPECT_NEAR(sample[2048], (0 - 0.4465) / 0.2616, 1e-5);
}

TEST_F(Cifar10Test, PlainFilesAreReadToo) {
  std::filesystem::remove(dir_ + "/data_batch_2.bin.xz");
  WritePlain("data_batch_2.bin", CifarRecord(6, 1));
  const auto data = LoadDataset("cifar10", dir_);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->train.labels, ElementsAre(1, 6, 3, 4, 5));
}

TEST_F(Cifar10Test, ARecordCutShortIsDataLoss) {
  WriteXz("data_batch_3.bin.xz", CifarRecord(1, 1).substr(0, 3000));
  EXPECT_THAT(Error("cifar10", absl::StatusCode::kDataLoss),
              AllOf(HasSubstr("data_batch_3.bin.xz"), HasSubstr("3073"), HasSubstr("got 3000")));
}

TEST_F(Cifar10Test, ALabelOverNineIsDataLoss) {
  WriteXz("test_batch.bin.xz", CifarRecord(9, 0) + CifarRecord(10, 0));
  EXPECT_THAT(Error("cifar10", absl::StatusCode::kDataLoss), HasSubstr("record 1"));
}

TEST_F(Cifar10Test, AStreamCutShortIsDataLoss) {
  Cut("data_batch_1.bin.xz", 20);
  EXPECT_THAT(Error("cifar10", absl::StatusCode::kDataLoss), HasSubstr("xz"));
}

TEST_F(Cifar10Test, AMissingFileIsNamed) {
  std::filesystem::remove(dir_ + "/data_batch_4.bin.xz");
  EXPECT_THAT(Error("cifar10", absl::StatusCode::kNotFound), HasSubstr("data_batch_4.bin.xz"));
}

TEST_F(DatasetTest, AFileLongerThanItsLimitIsDataLoss) {
  WritePlain("plain", std::string(100, 'x'));
  WriteGzip("packed.gz", std::string(100, 'x'));
  WriteXz("packed.xz", std::string(1000, 'x'));
  EXPECT_EQ(ReadPlainFile(dir_ + "/plain", 99).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(ReadPlainFile(dir_ + "/plain", 100).ok());
  EXPECT_EQ(ReadGzipFile(dir_ + "/packed.gz", 99).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(ReadGzipFile(dir_ + "/packed.gz", 100).ok());
  EXPECT_EQ(ReadXzFile(dir_ + "/packed.xz", 999).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(ReadXzFile(dir_ + "/packed.xz", 1000).ok());
}

std::string DigitsLine(int pixel, int label) {
  std::string line;
  for (int i = 0; i < 64; ++i) absl::StrAppend(&line, pixel, ",");
  return absl::StrCat(line, label, "\n");
}

TEST_F(DatasetTest, DigitsAreSplitFourToOneWithoutOverlap) {
  std::string content;
  for (int i = 0; i < 10; ++i) content += DigitsLine(i, i);
  WriteGzip("digits.csv.gz", content);
  const auto data = LoadDataset("digits", dir_);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->sample_shape, ElementsAre(1, 8, 8));
  EXPECT_EQ(data->train.count, 8u);
  EXPECT_EQ(data->test.count, 2u);
  std::set<int64_t> labels(data->train.labels.begin(), data->train.labels.end());
  labels.insert(data->test.labels.begin(), data->test.labels.end());
  EXPECT_EQ(labels.size(), 10u);
  std::vector<float> sample;
  data->AppendSample(data->test, 0, &sample);
  EXPECT_NEAR(sample[5], (static_cast<double>(data->test.labels[0]) - 4.884) / 6.017, 1e-5);
}

TEST_F(DatasetTest, MalformedDigitsNameTheLine) {
  const std::string good = DigitsLine(1, 1);
  for (const std::string& bad :
       {DigitsLine(17, 1), DigitsLine(1, 10), std::string("1,2,3\n"), good.substr(0, 20) + "\n",
        std::string("x") + good, std::string("\n"), good.substr(0, good.size() - 1) + ",1\n"}) {
    WriteGzip("digits.csv.gz", absl::StrCat(good, bad, good, good, good, good));
    EXPECT_THAT(Error("digits", absl::StatusCode::kDataLoss),
                AllOf(HasSubstr("digits.csv.gz"), HasSubstr("line 2")));
  }
}

TEST_F(DatasetTest, DebiansDigitsAreAllThere) {
  const auto data = LoadDataset("digits", "");
  if (absl::IsNotFound(data.status())) GTEST_SKIP() << data.status();
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.count + data->test.count, 1797u);
  EXPECT_EQ(data->train.count, 1437u);
}

TEST_F(DatasetTest, TextIsCutIntoWindowsWhoseLabelsAreTheNextCharacters) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text.push_back("acxz"[i % 4]);
  WritePlain("input.txt", text);
  const auto data = LoadDataset("text", dir_);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->classes, 4);
  EXPECT_THAT(data->sample_shape, ElementsAre(64));
  EXPECT_EQ(data->labels_per_sample, 64u);
  EXPECT_EQ(data->train.count, 14u);  // of 900 characters
  EXPECT_EQ(data->test.count, 1u);    // of 100
  std::vector<float> window;
  data->AppendSample(data->train, 1, &window);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(window[i], static_cast<float>(i % 4));
    EXPECT_EQ(data->train.labels[64 + i], static_cast<int64_t>((i + 1) % 4));
  }
}

TEST_F(DatasetTest, TextTooShortForOneWindowIsDataLoss) {
  WritePlain("input.txt", "To be");
  EXPECT_THAT(Error("text", absl::StatusCode::kDataLoss), HasSubstr("got 5"));
  WritePlain("input.txt", "");
  Error("text", absl::StatusCode::kDataLoss);
}

TEST_F(DatasetTest, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT(Error("imagenet", absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("imagenet"), HasSubstr("digits, mnist, cifar10, text")));
}

TEST_F(DatasetTest, OtherSetsThanDigitsNeedAFolder) {
  EXPECT_EQ(LoadDataset("mnist", "").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace slimps
