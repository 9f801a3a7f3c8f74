"""The columns of a FOCUS 1.2 file that Rackrate writes, in the order in which they stand.

Invariant: all 57 columns of the specification are here, columns of our own are last and begin with `x_`.
(Specification: https://focus.finops.org, version 1.2.) Always NULL, for a ledger does not know them: InvoiceId,
CapacityReservation*, SubAccount*. Prices are told in the billing currency, so PricingCurrency* repeat its columns.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["string", "decimal", "datetime"]


class Column(NamedTuple):
    name: str
    kind: Kind = "string"
    nullable: bool = True


COLUMNS = (
    Column("AvailabilityZone"),
    Column("BilledCost", "decimal", False),
    Column("BillingAccountId", "string", False),
    Column("BillingAccountName"),
    Column("BillingAccountType"),
    Column("BillingCurrency", "string", False),
    Column("BillingPeriodEnd", "datetime", False),
    Column("BillingPeriodStart", "datetime", False),
    Column("CapacityReservationId"),
    Column("CapacityReservationStatus"),
    Column("ChargeCategory", "string", False),
    Column("ChargeClass"),
    Column("ChargeDescription"),
    Column("ChargeFrequency", "string", False),
    Column("ChargePeriodEnd", "datetime", False),
    Column("ChargePeriodStart", "datetime", False),
    Column("CommitmentDiscountCategory"),
    Column("CommitmentDiscountId"),
    Column("CommitmentDiscountName"),
    Column("CommitmentDiscountQuantity", "decimal"),
    Column("CommitmentDiscountStatus"),
    Column("CommitmentDiscountType"),
    Column("CommitmentDiscountUnit"),
    Column("ConsumedQuantity", "decimal"),
    Column("ConsumedUnit"),
    Column("ContractedCost", "decimal", False),
    Column("ContractedUnitPrice", "decimal"),
    Column("EffectiveCost", "decimal", False),
    Column("InvoiceId"),
    Column("InvoiceIssuerName", "string", False),
    Column("ListCost", "decimal", False),
    Column("ListUnitPrice", "decimal"),
    Column("PricingCategory"),
    Column("PricingCurrency", "string", False),
    Column("PricingCurrencyContractedUnitPrice", "decimal"),
    Column("PricingCurrencyEffectiveCost", "decimal", False),
    Column("PricingCurrencyListUnitPrice", "decimal"),
    Column("PricingQuantity", "decimal"),
    Column("PricingUnit"),
    Column("ProviderName", "string", False),
    Column("PublisherName", "string", False),
    Column("RegionId"),
    Column("RegionName"),
    Column("ResourceId"),
    Column("ResourceName"),
    Column("ResourceType"),
    Column("ServiceCategory", "string", False),
    Column("ServiceName", "string", False),
    Column("ServiceSubcategory", "string", False),
    Column("SkuId"),
    Column("SkuMeter"),
    Column("SkuPriceDetails"),
    Column("SkuPriceId"),
    Column("SubAccountId"),
    Column("SubAccountName"),
    Column("SubAccountType"),
    Column("Tags"),
    Column("x_CostKind"),
    Column("x_GpuHours", "decimal"),
    Column("x_GpuModel"),
    Column("x_Job"),
    Column("x_Project"),
    Column("x_Purchase"),
    Column("x_User"),
    Column("x_UtilizationRatio", "decimal"),
)
COSTS = ("EffectiveCost", "BilledCost", "ContractedCost", "ListCost")

PROVIDERS = {
    "aws": ("AWS", "Amazon Elastic Compute Cloud"),
    "azure": ("Microsoft", "Virtual Machines"),
    "gcp": ("Google Cloud", "Compute Engine"),
    "alibaba": ("Alibaba Cloud", "Elastic Compute Service"),
    "on_premises": ("On premises", "GPU nodes"),
}
"""Cloud -> (ProviderName, ServiceName). What is in no cloud that we know counts as on premises."""
