from confluent_kafka import Consumer, Producer


class Billing:
    """Writes an invoice for each order."""

    def __init__(self, brokers):
        self.invoices = Producer({"bootstrap.servers": brokers, "acks": "all"})
        self.orders = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.orders.subscribe(["orders"])

    def bill(self, count):
        """Bill so many orders."""
        while count:
            order = self.orders.poll(1)
            if order is None or order.error():
                continue
            self.invoices.produce("invoices", key=order.key(), value=b"invoice: " + order.value())
            if self.invoices.flush(60):
                raise RuntimeError("an invoice was not acknowledged")
            self.orders.commit(order, asynchronous=False)
            count -= 1

    def close(self):
        self.orders.close()
