"""How a purchase is made: the command lines, the API calls, and the commitment that it becomes.

Invariant: nothing here is run; an offering's id is looked up first, and a placeholder stands where it goes.
"""

from __future__ import annotations

from fractions import Fraction

from pricing.advice import HOURS_PER_MONTH, Call, Case
from pricing.calendar import milliseconds
from pricing.commitment_mix_offers import Offer
from pricing.commitment_mix_owned import cloud_of
from pricing.ledger_merge import HOUR_MS
from pricing.owned import Commitment

YEAR_SECONDS = 365 * 86_400
PAYMENTS = {"no_upfront": "No Upfront", "partial_upfront": "Partial Upfront", "all_upfront": "All Upfront"}
LOOK_UP = "<the offering's id from the call before>"


def commitment_of(case: Case, offer: Offer, count: Fraction) -> Commitment:
    """As it would stand in terms.toml once it is bought; it starts with the hour."""
    starts = milliseconds(case.now) // HOUR_MS * HOUR_MS
    rate = offer.rates[offer.key]
    ends = starts + offer.term_months * HOURS_PER_MONTH * HOUR_MS
    cloud = cloud_of(case, offer.key) or ""
    name = f"advised {offer.option.id}"
    if not offer.is_plan:
        return Commitment(
            name, "reservation", cloud, starts, ends, rate.usd_per_hour, region=offer.key.region,
            instance_type=offer.key.instance_type, count=int(count), upfront=rate.upfront,
        )  # fmt: skip
    narrow = offer.scope == "EC2Instance"
    return Commitment(
        name, "savings_plan", cloud, starts, ends, count, region=offer.key.region if narrow else None,
        family=offer.key.instance_type.partition(".")[0] if narrow else None,
        rates={f"{key.region}/{key.instance_type}": one.usd_per_hour for key, one in offer.rates.items()},
        upfront=_plan_upfront(offer, count),
    )  # fmt: skip


def _plan_upfront(offer: Offer, count: Fraction) -> Fraction:
    share = {"all_upfront": Fraction(1), "partial_upfront": Fraction(1, 2)}.get(offer.payment or "", Fraction(0))
    return count * offer.term_months * HOURS_PER_MONTH * share


def how_of(case: Case, offer: Offer, count: Fraction) -> tuple[str, ...]:
    """Command lines, as they are typed."""
    if cloud_of(case, offer.key) not in ("aws", None):
        return (f"buy it in the console of {cloud_of(case, offer.key)}: {offer.option.id}",)
    region, name = offer.key.region, offer.key.instance_type
    seconds, payment = offer.term_months // 12 * YEAR_SECONDS, PAYMENTS.get(offer.payment or "", "No Upfront")
    if not offer.is_plan:
        return (
            f"aws ec2 describe-reserved-instances-offerings --region {region} --instance-type {name} "
            f"--product-description Linux/UNIX --instance-tenancy default --offering-class standard --offering-type '{payment}' "
            "--no-include-marketplace "
            f"--min-duration {seconds} --max-duration {seconds} --filters Name=scope,Values=Region",
            f"aws ec2 purchase-reserved-instances-offering --region {region} --reserved-instances-offering-id ID "
            f"--instance-count {int(count)}",
        )
    kind = "EC2Instance" if offer.scope == "EC2Instance" else "Compute"
    narrow = (
        f" --filters name=region,values={region} name=instanceFamily,values={name.partition('.')[0]}"
        if kind == "EC2Instance"
        else ""
    )
    return (
        f"aws savingsplans describe-savings-plans-offerings --plan-types {kind} --durations {seconds} "
        f"--payment-options '{payment}' --currencies USD{narrow}",
        f"aws savingsplans create-savings-plan --savings-plan-offering-id ID --commitment {float(count):.3f}",
    )


def calls_of(case: Case, offer: Offer, count: Fraction) -> tuple[Call, ...]:
    """The same as boto3 takes it; none for other clouds than AWS."""
    if cloud_of(case, offer.key) != "aws":
        return ()
    region, name = offer.key.region, offer.key.instance_type
    seconds, payment = offer.term_months // 12 * YEAR_SECONDS, PAYMENTS.get(offer.payment or "", "No Upfront")
    if not offer.is_plan:
        asked = {
            "InstanceType": name, "ProductDescription": "Linux/UNIX", "InstanceTenancy": "default", "OfferingClass": "standard",
            "OfferingType": payment,
            "IncludeMarketplace": False, "MinDuration": seconds, "MaxDuration": seconds,
            "Filters": [{"Name": "scope", "Values": ["Region"]}],
        }  # fmt: skip
        bought = {"ReservedInstancesOfferingId": LOOK_UP, "InstanceCount": int(count), "DryRun": True}
        return (
            Call("ec2", region, "describe_reserved_instances_offerings", asked, "Finds the offering."),
            Call("ec2", region, "purchase_reserved_instances_offering", bought, "Binds for the whole term."),
        )
    kind = "EC2Instance" if offer.scope == "EC2Instance" else "Compute"
    asked = {"planTypes": [kind], "durations": [seconds], "paymentOptions": [payment], "currencies": ["USD"]}
    if kind == "EC2Instance":
        family = name.partition(".")[0]
        chosen = {"region": region, "instanceFamily": family}
        asked["filters"] = [{"name": name, "values": [value]} for name, value in chosen.items()]  # type: ignore[misc]
    bought = {"savingsPlanOfferingId": LOOK_UP, "commitment": f"{float(count):.3f}"}
    return (
        Call("savingsplans", "us-east-1", "describe_savings_plans_offerings", asked, "Finds the offering."),
        Call("savingsplans", "us-east-1", "create_savings_plan", bought, "Binds for the whole term."),
    )
