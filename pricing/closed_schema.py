"""The ledger's tables of closed months.

Invariant: what stands in `closed_days`, `closed_usage` and `closed_charges` is written once, when a month is closed, and
never altered; corrections are rows of `closed_adjustments` alone, each with the moment at which it was noticed. Amounts
are exact fractions as text, `n/d`.
"""

TABLES = (
    """CREATE TABLE closed_months (
        id INTEGER PRIMARY KEY, month TEXT NOT NULL UNIQUE, tz TEXT NOT NULL, starts_ms INTEGER NOT NULL,
        ends_ms INTEGER NOT NULL, closed_at_ms INTEGER NOT NULL, currency TEXT NOT NULL,
        usage_print TEXT NOT NULL, price_print TEXT NOT NULL)""",
    """CREATE TABLE closed_days (
        starts_ms INTEGER PRIMARY KEY, ends_ms INTEGER NOT NULL, month_id INTEGER NOT NULL REFERENCES closed_months)""",
    "CREATE TABLE closed_rates (id INTEGER PRIMARY KEY, effective TEXT NOT NULL, listed TEXT, contracted TEXT,"
    " paid TEXT NOT NULL)",
    """CREATE TABLE closed_usage (
        starts_ms INTEGER NOT NULL, placement_id INTEGER NOT NULL, kind INTEGER NOT NULL, holder_id INTEGER NOT NULL,
        rate_id INTEGER NOT NULL, part INTEGER NOT NULL, share_ms INTEGER NOT NULL, busy INTEGER NOT NULL,
        measured_share_ms INTEGER NOT NULL, energy_mj INTEGER,
        PRIMARY KEY (starts_ms, placement_id, kind, holder_id, rate_id)) WITHOUT ROWID""",
    """CREATE TABLE closed_charges (
        id INTEGER PRIMARY KEY, starts_ms INTEGER NOT NULL, part TEXT NOT NULL, label TEXT NOT NULL,
        facts TEXT NOT NULL, placement_id INTEGER, cost TEXT NOT NULL, listed TEXT, contracted TEXT,
        commitment TEXT)""",
    "CREATE INDEX closed_charges_day ON closed_charges (starts_ms)",
    """CREATE TABLE closed_adjustments (
        id INTEGER PRIMARY KEY, month_id INTEGER NOT NULL REFERENCES closed_months, noticed_ms INTEGER NOT NULL,
        subject TEXT NOT NULL, placement_id INTEGER, cost TEXT NOT NULL, share_ms INTEGER NOT NULL, reason TEXT NOT NULL)""",
)
