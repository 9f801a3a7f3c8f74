"""Machine shapes that no data file states, entered by hand from the clouds' public machine documentation.

Invariant: a cell that is not certain is `-` (unknown); nothing here is a price.

One line a type: name, model, count (a fraction of a GPU as `1/6`), memory of one GPU as the guest sees it, vCPUs,
memory in GiB, local NVMe, network. GPU memory is in GiB; a trailing `G` makes it decimal gigabytes, as for cards whose
usable memory is stated so (24G = 24,000 MB). NVMe is in GB, or GiB with a trailing `i`; 0 means none is included.
"""

from __future__ import annotations

AWS = """
p2.xlarge     K80          1  12   4   61   0    -
p2.8xlarge    K80          8  12  32  488   0    10_Gigabit
p2.16xlarge   K80         16  12  64  732   0    25_Gigabit
p3.2xlarge    V100         1  16   8   61   0    Up_to_10_Gigabit
p3.8xlarge    V100         4  16  32  244   0    10_Gigabit
p3.16xlarge   V100         8  16  64  488   0    25_Gigabit
g2.2xlarge    K520         1   4   8   15  60    -
g2.8xlarge    K520         4   4  32   60 240    10_Gigabit
g3s.xlarge    M60          1   8   4   30.5 0    Up_to_10_Gigabit
g3.4xlarge    M60          1   8  16  122   0    Up_to_10_Gigabit
g3.8xlarge    M60          2   8  32  244   0    10_Gigabit
g3.16xlarge   M60          4   8  64  488   0    25_Gigabit
g4ad.xlarge   V520         1   8   4   16 150    Up_to_10_Gigabit
g4ad.2xlarge  V520         1   8   8   32 300    Up_to_10_Gigabit
g4ad.4xlarge  V520         1   8  16   64 600    Up_to_10_Gigabit
g4ad.8xlarge  V520         2   8  32  128 1200   15_Gigabit
g4ad.16xlarge V520         4   8  64  256 2400   25_Gigabit
dl1.24xlarge  Gaudi        8  32  96  768 4000   4x_100_Gigabit
"""

AWS_CHIPS = {
    "inf1.xlarge": ("Inferentia", 1, 8),
    "inf1.2xlarge": ("Inferentia", 1, 8),
    "inf1.6xlarge": ("Inferentia", 4, 8),
    "inf1.24xlarge": ("Inferentia", 16, 8),
    "inf2.xlarge": ("Inferentia2", 1, 32),
    "inf2.8xlarge": ("Inferentia2", 1, 32),
    "inf2.24xlarge": ("Inferentia2", 6, 32),
    "inf2.48xlarge": ("Inferentia2", 12, 32),
    "trn1.2xlarge": ("Trainium", 1, 32),
    "trn1.32xlarge": ("Trainium", 16, 32),
    "trn1n.32xlarge": ("Trainium", 16, 32),
    "trn2.3xlarge": ("Trainium2", 1, 96),
    "trn2.48xlarge": ("Trainium2", 16, 96),
}
"""Type -> chip, chips, GiB per chip: the data file leaves these cells empty."""

CPU_GIB_PER_VCPU = {"m5": 4, "m6i": 4, "m7i": 4, "c5": 2, "c6i": 2, "c7i": 2, "r6i": 8}
"""AWS families for nodes without GPU; all are EBS-only. i3en stands in the data file."""

CPU_METAL_VCPUS = {"m5": 96, "c5": 96, "m6i": 128, "c6i": 128, "r6i": 128}

GCP = """
a2-highgpu-1g    A100          1  40  12   85     0      24_Gigabit
a2-highgpu-2g    A100          2  40  24  170     0      32_Gigabit
a2-highgpu-4g    A100          4  40  48  340     0      50_Gigabit
a2-highgpu-8g    A100          8  40  96  680     0     100_Gigabit
a2-megagpu-16g   A100         16  40  96 1360     0     100_Gigabit
a2-ultragpu-1g   A100          1  80  12  170   375i     24_Gigabit
a2-ultragpu-2g   A100          2  80  24  340   750i     32_Gigabit
a2-ultragpu-4g   A100          4  80  48  680  1500i     50_Gigabit
a2-ultragpu-8g   A100          8  80  96 1360  3000i    100_Gigabit
a3-highgpu-1g    H100          1  80  26  234   750i     25_Gigabit
a3-highgpu-2g    H100          2  80  52  468  1500i     50_Gigabit
a3-highgpu-4g    H100          4  80 104  936  3000i    100_Gigabit
a3-highgpu-8g    H100          8  80 208 1872  6000i   1000_Gigabit
a3-megagpu-8g    H100          8  80 208 1872  6000i   1800_Gigabit
g2-standard-4    L4            1 24G   4   16     0      10_Gigabit
g2-standard-8    L4            1 24G   8   32     0      16_Gigabit
g2-standard-12   L4            1 24G  12   48     0      16_Gigabit
g2-standard-16   L4            1 24G  16   64     0      32_Gigabit
g2-standard-24   L4            2 24G  24   96     0      32_Gigabit
g2-standard-32   L4            1 24G  32  128     0      32_Gigabit
g2-standard-48   L4            4 24G  48  192     0      50_Gigabit
g2-standard-96   L4            8 24G  96  384     0     100_Gigabit
g4-standard-6    RTX_PRO_6000 1/8 12   6   22     0      20_Gigabit
g4-standard-12   RTX_PRO_6000 1/4 24  12   45     -      20_Gigabit
g4-standard-24   RTX_PRO_6000 1/2 48  24   90     -      20_Gigabit
g4-standard-48   RTX_PRO_6000  1  96  48  180     -      50_Gigabit
g4-standard-96   RTX_PRO_6000  2  96  96  360     -     100_Gigabit
g4-standard-192  RTX_PRO_6000  4  96 192  720     -     200_Gigabit
g4-standard-384  RTX_PRO_6000  8  96 384 1440     -     400_Gigabit
"""

AZURE = """
NC6_Promo          K80     1  12   6   56   -     -
NC12_Promo         K80     2  12  12  112   -     -
NC24_Promo         K80     4  12  24  224   -     -
NC24r_Promo        K80     4  12  24  224   -     InfiniBand
NC6s_v3            V100    1  16   6  112   -     -
NC12s_v3           V100    2  16  12  224   -     -
NC24s_v3           V100    4  16  24  448   -     -
NC24rs_v3          V100    4  16  24  448   -     InfiniBand
NC4as_T4_v3        T4      1  16   4   28   -     8_Gigabit
NC8as_T4_v3        T4      1  16   8   56   -     8_Gigabit
NC16as_T4_v3       T4      1  16  16  110   -     8_Gigabit
NC64as_T4_v3       T4      4  16  64  440   -     32_Gigabit
NC8ads_A10_v4      A10     -   -   8    -   -     -
NC16ads_A10_v4     A10     -   -  16    -   -     -
NC32ads_A10_v4     A10     -   -  32    -   -     -
NC24ads_A100_v4    A100    1  80  24  220  960    20_Gigabit
NC48ads_A100_v4    A100    2  80  48  440 1920    40_Gigabit
NC96ads_A100_v4    A100    4  80  96  880 3840    80_Gigabit
NC40ads_H100_v5    H100    1  94  40  320 3576i   40_Gigabit
NC80adis_H100_v5   H100    2  94  80  640 7152i   80_Gigabit
NCC40ads_H100_v5   H100    1  94  40  320   -     -
ND40s_v2           V100    8  32  40  672   -     -
ND40rs_v2          V100    8  32  40  672   -     100_Gigabit_InfiniBand
ND96asr_v4         A100    8  40  96  900   -     8x_200_Gigabit_InfiniBand
ND96asr_A100_v4    A100    8  40  96  900   -     8x_200_Gigabit_InfiniBand
ND96amsr_A100_v4   A100    8  80  96 1900   -     8x_200_Gigabit_InfiniBand
ND96ams_A100_v4    A100    8  80  96 1900   -     -
ND96isr_H100_v5    H100    8  80  96 1900   -     8x_400_Gigabit_InfiniBand
ND96isrf_H100_v5   H100    8  80  96    -   -     -
ND96is_H100_v5     H100    8  80  96 1900   -     -
ND96isf_H100_v5    H100    8  80  96    -   -     -
ND96is_flex_H100_v5 H100   8  80  96    -   -     -
ND96is_noIB_H100_v5 H100   8  80  96    -   -     -
ND96isr_H200_v5    H200    8 141  96 1850   -     8x_400_Gigabit_InfiniBand
ND96is_MI300X_v5   MI300X  8 192  96 1850   -     -
ND96isr_MI300X_v5  MI300X  8 192  96 1850   -     8x_400_Gigabit_InfiniBand
ND128isr_NDR_GB200_v6 GB200 4  -  128  900  -     4x_400_Gigabit_InfiniBand
ND128isrf_NDR_GB200_v6 GB200 4 -  128    -  -     -
NV6_Promo          M60     1   8   6   56   -     -
NV12_Promo         M60     2   8  12  112   -     -
NV24_Promo         M60     4   8  24  224   -     -
NV6s_v2            M60     1   8   6  112   -     -
NV12s_v2           M60     2   8  12  224   -     -
NV24s_v2           M60     4   8  24  448   -     -
NV12s_v3           M60     1   8  12  112   -     -
NV24s_v3           M60     2   8  24  224   -     -
NV48s_v3           M60     4   8  48  448   -     -
NV4as_v4           MI25  1/8   2   4   14   -     -
NV8as_v4           MI25  1/4   4   8   28   -     -
NV16as_v4          MI25  1/2   8  16   56   -     -
NV32as_v4          MI25    1  16  32  112   -     -
NV6ads_A10_v5      A10   1/6  4G   6   55   -     5_Gigabit
NV12ads_A10_v5     A10   1/3  8G  12  110   -     10_Gigabit
NV18ads_A10_v5     A10   1/2 12G  18  220   -     20_Gigabit
NV36ads_A10_v5     A10     1 24G  36  440   -     40_Gigabit
NV36adms_A10_v5    A10     1 24G  36  880   -     80_Gigabit
NV72ads_A10_v5     A10     2 24G  72  880   -     80_Gigabit
NV4ads_V710_v5     V710  1/6   -   4   16   -     -
NV8ads_V710_v5     V710  1/3   -   8   32   -     -
NV12ads_V710_v5    V710  1/2   -  12   64   -     -
NV24ads_V710_v5    V710    1   -  24  128   -     -
NV28adms_V710_v5   V710    1   -  28  160   -     -
NG8ads_V620_v1     V620  1/4   8   8   16   -     -
NG16ads_V620_v1    V620  1/2  16  16   32   -     -
NG32ads_V620_v1    V620    1  32  32   64   -     -
NG32adms_V620      V620    1  32  32  176   -     -
NC36ds_xl_RTXPRO6000BSE_v6   RTX_PRO_6000 1/4 24  36    -  -  -
NC36lds_xl_RTXPRO6000BSE_v6  RTX_PRO_6000 1/4 24  36   72  -  -
NC24lds_xl_RTXPRO6000BSE_v6  RTX_PRO_6000 1/4 24  24   72  -  -
NC72ds_xl_RTXPRO6000BSE_v6   RTX_PRO_6000 1/2 48  72    -  -  -
NC72lds_xl_RTXPRO6000BSE_v6  RTX_PRO_6000 1/2 48  72    -  -  -
NC144ds_xl_RTXPRO6000BSE_v6  RTX_PRO_6000 1   96 144  516  -  -
NC144lds_xl_RTXPRO6000BSE_v6 RTX_PRO_6000 1   96 144  264  -  -
NC288ds_xl_RTXPRO6000BSE_v6  RTX_PRO_6000 2   96 288 1032  -  -
NC288lds_xl_RTXPRO6000BSE_v6 RTX_PRO_6000 2   96 288  516  -  -
"""

AZURE_MODEL_IN_NAME = {"RTXPRO6000BSE": "RTX PRO 6000"}
"""Part of a size's name -> model, for sizes whose GPU count is not certain; Azure's first number is the vCPUs."""

ALIBABA = """
gn5-c4g1.xlarge      P100   1  16   4   30  -  -
gn5-c8g1.2xlarge     P100   1  16   8   60  -  -
gn5-c4g1.2xlarge     P100   2  16   8   60  -  -
gn5-c8g1.4xlarge     P100   2  16  16  120  -  -
gn5-c28g1.7xlarge    P100   1  16  28  112  -  -
gn5-c8g1.8xlarge     P100   4  16  32  240  -  -
gn5-c28g1.14xlarge   P100   2  16  56  224  -  -
gn5-c8g1.14xlarge    P100   8  16  54  480  -  -
gn5i-c2g1.large      P4     1   8   2    8  0  -
gn5i-c4g1.xlarge     P4     1   8   4   16  0  -
gn5i-c8g1.2xlarge    P4     1   8   8   32  0  -
gn5i-c16g1.4xlarge   P4     1   8  16   64  0  -
gn5i-c16g1.8xlarge   P4     2   8  32  128  0  -
gn5i-c28g1.14xlarge  P4     2   8  56  224  0  -
gn6v-c8g1.2xlarge    V100   1  16   8   32  0  -
gn6v-c8g1.4xlarge    V100   2  16  16   64  0  -
gn6v-c8g1.8xlarge    V100   4  16  32  128  0  -
gn6v-c8g1.16xlarge   V100   8  16  64  256  0  -
gn6v-c10g1.20xlarge  V100   8  16  82  336  0  -
gn6e-c12g1.3xlarge   V100   1  32  12   92  0  -
gn6e-c12g1.12xlarge  V100   4  32  48  368  0  -
gn6e-c12g1.24xlarge  V100   8  32  96  736  0  -
gn6i-c4g1.xlarge     T4     1  16   4   15  0  -
gn6i-c8g1.2xlarge    T4     1  16   8   31  0  -
gn6i-c16g1.4xlarge   T4     1  16  16   62  0  -
gn6i-c24g1.6xlarge   T4     1  16  24   93  0  -
gn6i-c40g1.10xlarge  T4     1  16  40  155  0  -
gn6i-c24g1.12xlarge  T4     2  16  48  186  0  -
gn6i-c24g1.24xlarge  T4     4  16  96  372  0  -
gn7-c12g1.3xlarge    A100   1  40  12    -  -  -
gn7-c13g1.13xlarge   A100   4  40  52  378  -  -
gn7-c13g1.26xlarge   A100   8  40 104  756  -  -
gn7e-c16g1.4xlarge   A100   1  80  16  125  -  -
gn7e-c16g1.8xlarge   A100   2  80  32  250  -  -
gn7e-c16g1.16xlarge  A100   4  80  64  500  -  -
gn7e-c16g1.32xlarge  A100   8  80 128 1000  -  -
gn7i-c8g1.2xlarge    A10    1 24G   8   30  0  -
gn7i-c16g1.4xlarge   A10    1 24G  16   60  0  -
gn7i-c32g1.8xlarge   A10    1 24G  32  188  0  -
gn7i-c32g1.16xlarge  A10    2 24G  64  376  0  -
gn7i-c32g1.32xlarge  A10    4 24G 128  752  0  -
gn7i-c48g1.12xlarge  A10    1 24G  48  310  0  -
gn7i-c56g1.14xlarge  A10    1 24G  56  346  0  -
gn7i-2x.8xlarge      A10    2 24G  32  128  0  -
gn7i-4x.8xlarge      A10    4 24G  32  128  0  -
gn7i-4x.16xlarge     A10    4 24G  64  256  0  -
gn7i-8x.16xlarge     A10    8 24G  64  256  0  -
gn7i-8x.32xlarge     A10    8 24G 128  512  0  -
gn7r-c16g1.4xlarge   A16    -   -  16    -  -  -
ebmgn6i.24xlarge     T4     4  16  96  384  -  -
ebmgn6ia.20xlarge    T4     2  16  80  256  -  -
ebmgn7.26xlarge      A100   8  40 104  768  -  -
ebmgn7e.32xlarge     A100   8  80 128 1024  -  -
ebmgn7ex.32xlarge    A100   8  80 128 1024  -  -
ebmgn7i.32xlarge     A10    4 24G 128  768  -  -
ebmgn7ix.32xlarge    A10    -   - 128    -  -  -
sgn6i-vws-m2.xlarge  T4   1/8   2   4    -  -  -
sgn6i-vws-m4.2xlarge T4   1/4   4   8    -  -  -
sgn6i-vws-m8.4xlarge T4   1/2   8  16    -  -  -
sgn7i-vws-m2.xlarge  A10 1/12  2G   4    -  -  -
sgn7i-vws-m2s.xlarge A10 1/12  2G   4    8  -  -
sgn7i-vws-m4.2xlarge A10  1/6  4G   8    -  -  -
sgn7i-vws-m4s.2xlarge A10 1/6  4G   8   16  -  -
sgn7i-vws-m8.4xlarge A10  1/3  8G  16   62  -  -
sgn7i-vws-m8s.4xlarge A10 1/3  8G  16   32  -  -
vgn6i-m4-vws.xlarge  T4   1/4   4   -    -  -  -
vgn6i-m8-vws.2xlarge T4   1/2   8   -    -  -  -
vgn6i-m16-vws.5xlarge T4    1  16   -    -  -  -
vgn7i-vws-m4.xlarge  A10  1/6  4G   -    -  -  -
vgn7i-vws-m8.2xlarge A10  1/3  8G   -    -  -  -
vgn7i-vws-m12.3xlarge A10 1/2 12G   -    -  -  -
vgn7i-vws-m24.7xlarge A10   1 24G   -    -  -  -
"""
